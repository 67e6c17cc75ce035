"""A minimal HTTP client: a library's client would need more CPU than the server."""

from asyncio import StreamReader, StreamWriter


async def post(
    streams: tuple[StreamReader, StreamWriter],
    path: str,
    said: str,
    more: str = "",
    *,
    status: int = 202,
) -> bytes:
    """Post JSON over a persistent connection; return the body of the answer."""
    reader, writer = streams
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/json\r\n"
        f"{more}Content-Length: {len(said)}\r\n\r\n"
    )
    writer.write((head + said).encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in answer.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    body = await reader.readexactly(length)
    if not answer.startswith(f"HTTP/1.1 {status}".encode()):
        raise RuntimeError((answer + body).decode())
    return body
