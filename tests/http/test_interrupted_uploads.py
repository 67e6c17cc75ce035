"""A client that leaves in the middle of an upload to an application leaves nothing."""

import asyncio
from typing import Annotated
from urllib.parse import urlsplit

import pytest
from fastapi import APIRouter
from starlette.requests import Request

from backburner import Owner, web
from tests.http.test_files import left_in
from tests.http.test_web import FIELD, FORM, form_of

SIZE, SENT = 500_000, 300_000
ANN = Owner("default", "1")
Writer = Annotated[web.Caller, web.require("jobs:write")]


def routes(blobs, ended):
    """Return routes that store what comes; how each of them ended is noted."""
    router = APIRouter()

    async def store(source):
        try:
            ended.append(await blobs().write(source))
        except BaseException as error:
            ended.append(error)
            raise

    @router.post("/app/body")
    async def body(request: Request, _caller: Writer):
        async with web.streamed(request, limit=2 * SIZE) as chunks:
            await store(chunks)
        return web.answer({})

    @router.post("/app/form")
    async def form(request: Request, _caller: Writer):
        async with web.multipart(request, limit=2 * SIZE) as parts:
            async for part in parts:
                await store(part)
        return web.answer({})

    return router.routes


@pytest.fixture
async def uploading(serve, tmp_path):
    """A server with these routes, the folder of its blobs, and how uploads ended."""
    root, ended = tmp_path / "contents", []
    app_routes = routes(lambda: server.backburner.blobs("songs", ANN), ended)
    server = await serve(works=False, blobs=root.as_uri(), app_routes=app_routes)
    return server, root, ended


CONTENTS = {
    "body": ({}, bytes(SIZE)),
    "form": (FORM, form_of((FIELD, bytes(SIZE)))),
}


@pytest.mark.parametrize("kind", CONTENTS)
async def test_a_client_that_leaves_in_the_middle_leaves_nothing(uploading, kind):
    server, root, ended = uploading
    headers, content = CONTENTS[kind]
    parts = urlsplit(server.url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    told = {**headers, "Host": parts.netloc, "Content-Length": len(content)}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    asked = f"POST /app/{kind} HTTP/1.1\r\n{head}\r\n".encode()
    writer.write(asked + content[:SENT])
    await writer.drain()
    await server.until(lambda: 1 == len(left_in(root)))
    writer.close()
    await server.until(lambda: ended and not left_in(root))

    assert isinstance(ended[0], BaseException)
    assert [] == list(await server.backburner.blobs("songs", ANN).list())


@pytest.mark.parametrize("kind", CONTENTS)
async def test_a_client_that_stays_leaves_a_blob(uploading, kind):
    server, root, _ = uploading
    headers, content = CONTENTS[kind]
    await server.client.post(f"/app/{kind}", content=content, headers=headers)
    [blob] = await server.backburner.blobs("songs", ANN).list()

    assert (SIZE, 1) == (blob.size, len(left_in(root)))
