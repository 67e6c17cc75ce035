"""Clients that are slow, endless or huge, over raw sockets: each is cut off."""

import asyncio
from contextlib import asynccontextmanager

import orjson
import pytest

from backburner.engine.observability import telemetry
from backburner.http.schemas.jobs import Problem
from backburner.testing.broker.acts import pause

QUICK = {"header_seconds": 0.3, "body_seconds": 0.3}
HEAD = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
)
WHOLE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
MIB = 1024 * 1024
START = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
MOST = 64 * MIB
"""An endless client gives up here; the kernel's buffers are far smaller."""


class Raw:
    """A client that sends what it likes."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def send(self, data):
        """Send, and say whether the server still listens."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            return False
        return not self.reader.at_eof()

    async def rest(self):
        """Return what the server sends until it closes."""
        read = b""
        async with asyncio.timeout(60):
            try:
                while chunk := await self.reader.read(65536):
                    read += chunk
            except ConnectionError:
                pass
        return read

    async def rest_of_line(self):
        """Return the first line of an answer, or nothing."""
        try:
            return await self.reader.readline()
        except ConnectionError:
            return b""

    async def answer(self):
        """Return the status and the problem of an answer after which it closes."""
        head, _, body = (await self.rest()).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        return int(head.split()[1]), Problem.model_validate(orjson.loads(body))


@asynccontextmanager
async def raw(server):
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def quick(serve):
    """A server that waits for nobody."""
    return await serve(works=False, limits=QUICK)


def refused(code):
    found = telemetry.registry.get_sample_value(
        "backburner_connections_refused_total", {"code": code}
    )
    return found or 0


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", b"\r\n", b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"],
    ids=["nothing", "a letter", "an empty line", "half a head"],
)
async def test_a_head_that_does_not_come_is_a_408(quick, sent):
    before = refused("REQUEST_TOO_SLOW")
    async with raw(quick) as client:
        await client.send(sent)
        status, problem = await client.answer()

    assert (408, "REQUEST_TOO_SLOW") == (status, problem.code)
    assert before + 1 == refused("REQUEST_TOO_SLOW")


async def test_a_head_by_the_letter_is_a_408(quick):
    async with raw(quick) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        answering = asyncio.create_task(client.answer())
        while not answering.done() and await client.send(b"x"):
            await pause()
        status, _ = await answering

    assert 408 == status


async def test_a_letter_between_two_requests_does_not_hold_a_connection(quick):
    async with raw(quick) as client:
        await client.send(WHOLE)
        first = await client.reader.readuntil(b'"ok"}')
        await client.send(b"\r\n")
        status, _ = await client.answer()

    assert first.startswith(b"HTTP/1.1 200")
    assert 408 == status


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 50\r\n", b"Transfer-Encoding: chunked\r\n"]
)
async def test_a_body_that_does_not_come_is_a_408_and_gives_its_place_back(
    quick, framing
):
    async with raw(quick) as client:
        await client.send(HEAD + framing + b"\r\n")
        await client.send(b"5\r\nhello\r\n" if b"chunked" in framing else b"hello")
        status, problem = await client.answer()
    await quick.until(lambda: quick.app.state.server_state.bodies.taken == 0)

    assert (408, "REQUEST_TOO_SLOW") == (status, problem.code)
    assert "body" in problem.detail


async def test_silent_uploads_do_not_keep_large_submits_out_for_ever(serve):
    server = await serve(works=False, limits={"body_seconds": 1})
    bodies = server.app.state.server_state.bodies
    silent = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    clients = [raw(server) for _ in range(bodies.limit)]
    opened = [await client.__aenter__() for client in clients]
    for client in opened:
        await client.send(silent)
    await server.until(lambda: bodies.taken == bodies.limit)
    await server.until(lambda: bodies.taken == 0)
    response = await server.client.post(
        "/v1/jobs",
        content=iter_bytes(b'{"capability": "demo.echo", "input": {}}'),
        headers={"Content-Type": "application/json"},
    )
    for client in clients:
        await client.__aexit__(None, None, None)

    assert 202 == response.status_code


async def iter_bytes(body):
    yield body


async def test_a_body_that_keeps_coming_has_time_for_it(serve):
    server = await serve(works=False, body_limit=MIB * 4, limits={"body_seconds": 0.2})
    body = b'{"capability": "demo.echo", "input": {"x": "' + b"x" * 2 * MIB + b'"}}'
    over = asyncio.get_running_loop().time() + 0.6
    async with raw(server) as client:
        await client.send(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode())
        await client.send(body[:MIB])
        await server.until(lambda: asyncio.get_running_loop().time() > over)
        await client.send(body[MIB:])
        line = await client.reader.readline()

    assert line.startswith(b"HTTP/1.1 202")


async def test_a_long_wait_for_an_answer_is_not_cut(quick):
    job = await quick.submit()
    ask = f"GET /v1/jobs/{job['id']} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    async with raw(quick) as client:
        await client.send(f"{ask}Prefer: wait=2\r\n\r\n".encode())
        line = await client.reader.readline()

    assert line.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        pytest.param(f"{START}X-Endless: ".encode(), b"x" * 65536, id="header"),
        pytest.param(b"GET /", b"x" * 65536, id="address"),
        pytest.param(START.encode(), b"X-A: b\r\n" * 8192, id="headers"),
    ],
)
async def test_what_has_no_end_is_cut_off(quick, start, piece):
    async with raw(quick) as client:
        await client.send(start)
        sent = 0
        while sent < MOST and await client.send(piece):
            sent += len(piece)

    assert sent < MOST


async def test_a_head_over_the_limit_is_a_431(server):
    limit = 32 * 1024
    before = refused("HEADERS_TOO_LARGE")
    async with raw(server) as client:
        await client.send(WHOLE[:-2] + b"X-Long: " + b"x" * limit + b"\r\n\r\n")
        status, problem = await client.answer()
    fits = await server.client.get("/livez", headers={"X-Long": "x" * (limit - 500)})

    assert (431, "HEADERS_TOO_LARGE") == (status, problem.code)
    assert 200 == fits.status_code
    assert before + 1 == refused("HEADERS_TOO_LARGE")


async def test_a_header_too_many_is_a_431(server):
    async with raw(server) as client:
        await client.send(WHOLE[:-2] + b"X-A: b\r\n" * 100 + b"\r\n")
        status, problem = await client.answer()
    async with raw(server) as client:
        await client.send(WHOLE[:-2] + b"X-A: b\r\n" * 99 + b"\r\n")
        fits = await client.reader.readline()

    assert (431, "HEADERS_TOO_LARGE") == (status, problem.code)
    assert fits.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"what is this\r\n\r\n",
    ],
    ids=["no host", "two hosts", "no request"],
)
async def test_what_is_no_request_is_a_400(server, sent):
    async with raw(server) as client:
        await client.send(sent)
        status, problem = await client.answer()

    assert (400, "MALFORMED_REQUEST") == (status, problem.code)


async def test_http_1_0_needs_no_host(server):
    async with raw(server) as client:
        await client.send(b"GET /livez HTTP/1.0\r\n\r\n")
        read = await client.rest()

    assert read.startswith(b"HTTP/1.1 200")


async def test_a_connection_too_many_is_a_503_and_later_ones_are_taken(serve):
    server = await serve(works=False, limits={"connections": 3})
    async with raw(server) as first, raw(server), raw(server):
        await first.send(WHOLE)
        await first.reader.readuntil(b'"ok"}')
        async with raw(server) as fourth:
            status, problem = await fourth.answer()
        await first.send(WHOLE)
        again = await first.reader.readuntil(b'"ok"}')
    taken = b""
    while not taken.startswith(b"HTTP/1.1 200"):  # once the others' ends arrived
        async with raw(server) as later:
            await later.send(WHOLE)
            taken = (await later.rest_of_line()) or b""

    assert (503, "TOO_MANY_CONNECTIONS", 5) == (
        status,
        problem.code,
        problem.retry_after,
    )
    assert again.startswith(b"HTTP/1.1 200")
    assert taken.startswith(b"HTTP/1.1 200")


async def test_two_hundred_slow_connections_end_by_themselves(quick):
    before = refused("REQUEST_TOO_SLOW")
    clients = [raw(quick) for _ in range(200)]
    opened = [await client.__aenter__() for client in clients]
    for client in opened:
        await client.send(b"GET / HTTP/1.1\r\nX-Slow: ")
    answers = [await client.answer() for client in opened]
    for client in clients:
        await client.__aexit__(None, None, None)

    assert {408} == {status for status, _ in answers}
    assert before + 200 == refused("REQUEST_TOO_SLOW")


async def test_one_who_does_not_read_its_answer_is_dropped(serve, monkeypatch):
    monkeypatch.setattr("backburner.http.protocol.WRITE_SECONDS", 0.3)
    server = await serve(works=False, body_limit=10 * MIB)
    body = orjson.dumps({"capability": "demo.echo", "input": {"x": "x" * 9 * MIB}})
    made = await server.client.post(
        "/v1/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    ask = f"GET {made.json()['links']['self']} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    before = refused("ANSWER_NOT_READ")
    async with raw(server) as client:
        client.writer.transport.pause_reading()
        await client.send(ask.encode() * 3)
        await server.until(lambda: refused("ANSWER_NOT_READ") > before)

    assert before + 1 == refused("ANSWER_NOT_READ")
