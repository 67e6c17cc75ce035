"""What an application's own routes read and answer through `backburner.web`."""

import asyncio
from typing import Annotated

import pytest
import sqlalchemy as sa
from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request

from backburner import web
from backburner.http.body import LARGE

LIMIT = 4 * LARGE
Reader = Annotated[web.Caller, web.require("jobs:read")]


def uploading(router, sizes):
    """Add a route that notes the size of each chunk that it reads."""

    @router.post("/app/upload")
    async def upload(request: Request, _caller: Reader):
        async with web.streamed(request, limit=LIMIT) as chunks:
            async for chunk in chunks:
                sizes.append(len(chunk))
        return web.answer({"size": sum(sizes)})


@pytest.fixture
async def upload(serve):
    """A server with a route that streams, and the sizes of what it read."""
    router, sizes = APIRouter(), []
    uploading(router, sizes)
    return await serve(works=False, app_routes=router.routes), sizes


async def pieces(size, more=b""):
    for _ in range(size // LARGE):
        yield bytes(LARGE)
    yield more


async def test_a_body_is_read_in_chunks_beyond_the_limit_of_json(upload):
    server, sizes = upload
    assert server.app.state.server_state.settings.body_limit < LIMIT
    answered = await server.client.post("/app/upload", content=pieces(LIMIT))

    assert {"size": LIMIT} == answered.json()
    assert max(sizes) < LARGE
    assert 0 == server.app.state.server_state.uploads.taken


@pytest.mark.parametrize("announced", [True, False])
async def test_a_streamed_body_over_its_limit_is_refused(upload, announced):
    server, sizes = upload
    content = bytes(LIMIT + 1) if announced else pieces(LIMIT, b"x")
    answered = await server.client.post("/app/upload", content=content)

    assert (413, "BODY_TOO_LARGE") == (answered.status_code, answered.json()["code"])
    assert sum(sizes) <= LIMIT
    assert not (announced and sizes)
    assert 0 == server.app.state.server_state.uploads.taken


async def test_too_many_streamed_bodies_at_once_are_turned_away(upload):
    server, sizes = upload
    uploads = server.app.state.server_state.uploads
    uploads.taken = uploads.limit
    large = await server.client.post("/app/upload", content=pieces(LARGE))
    small = await server.client.post("/app/upload", content=b"small")

    assert (503, "TOO_MANY_BODIES") == (large.status_code, large.json()["code"])
    assert (200, [5]) == (small.status_code, sizes)


async def test_a_route_of_an_application_streams_events(serve):
    router, more, closed = APIRouter(), asyncio.Event(), asyncio.Event()

    async def events():
        try:
            yield web.ServerEvent({"n": 1}, "counted", "a")
            await more.wait()
            yield web.ServerEvent([2])
            await asyncio.Event().wait()
        finally:
            closed.set()

    @router.get("/app/events")
    async def stream(_caller: Reader):
        return web.ServerEvents(events(), start=0)

    server = await serve(works=False, app_routes=router.routes)
    async with server.client.stream("GET", "/app/events") as answered:
        lines = answered.aiter_lines()
        first = [await anext(lines) for _ in range(7)]
        held = server.app.state.server_state.streams.open
        more.set()
        second = [await anext(lines) for _ in range(3)]
    await closed.wait()

    assert "text/event-stream" == answered.headers["content-type"].partition(";")[0]
    opening = ["retry: 1000", "id: 0", ""]
    assert [*opening, "id: a", "event: counted", 'data: {"n":1}', ""] == first
    assert ["event: message", "data: [2]", ""] == second
    assert 1 == held
    await server.until(lambda: server.app.state.server_state.streams.open == 0)


@pytest.mark.parametrize("field", ["id", "type"])
def test_an_event_cannot_smuggle_another_field(field):
    with pytest.raises(ValueError, match="one line"):
        web.ServerEvent({}, **{field: "a\ndata: forged"}).written()


@pytest.fixture
async def forms(serve):
    """A server with a route that reads forms, and what it read of each part."""
    router, read = APIRouter(), []

    @router.post("/app/form")
    async def form(request: Request, _caller: Reader):
        async with web.multipart(request, limit=LIMIT, parts=3) as parts:
            async for part in parts:
                named = (part.name, part.filename, part.media_type)
                if part.name == "skipped":
                    read.append(named)
                elif part.filename is None:
                    read.append((*named, await part.read(limit=10)))
                else:
                    read.append((*named, sum([len(chunk) async for chunk in part])))
        return web.answer({"parts": len(read)})

    return await serve(works=False, app_routes=router.routes), read


def form_of(*parts, end=b"--BB--\r\n"):
    """Write a form by hand: each part is its headers and its content."""
    return (
        b"".join(
            b"--BB\r\n" + head + b"\r\n\r\n" + content + b"\r\n"
            for head, content in parts
        )
        + end
    )


FORM = {"Content-Type": "multipart/form-data; boundary=BB"}
FIELD = b'Content-Disposition: form-data; name="a"'


async def test_a_form_is_read_part_by_part(forms):
    server, read = forms
    files = {
        "skipped": ("s.bin", bytes(3 * LARGE)),
        "file": ("na\u00efve.txt", bytes(LARGE // 2), "image/png"),
    }
    answered = await server.client.post("/app/form", data={"a": "1"}, files=files)

    assert {"parts": 3} == answered.json()
    assert [
        ("a", None, "text/plain", b"1"),
        ("skipped", "s.bin", "application/octet-stream"),
        ("file", "na\u00efve.txt", "image/png", LARGE // 2),
    ] == read
    assert 0 == server.app.state.server_state.uploads.taken


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (form_of(), 200, None),
        (form_of((FIELD, b"1234567890")), 200, None),
        (form_of((FIELD, b"12345678901")), 413, "BODY_TOO_LARGE"),
        (form_of(*[(FIELD, b"")] * 4), 413, "BODY_TOO_LARGE"),
        (form_of((FIELD, bytes(LIMIT))), 413, "BODY_TOO_LARGE"),
        (form_of((FIELD, b"1"), end=b""), 400, "MALFORMED_BODY"),
        (form_of((b"Content-Disposition: form-data", b"1")), 400, "MALFORMED_BODY"),
        (form_of((b"X: y", b"1")), 400, "MALFORMED_BODY"),
        (form_of((b"X: " + b"y" * 9000, b"1")), 400, "MALFORMED_BODY"),
        (form_of((FIELD.replace(b"a", b"\xff"), b"1")), 400, "MALFORMED_BODY"),
        (b"no form at all", 400, "MALFORMED_BODY"),
        (b"", 400, "MALFORMED_BODY"),
    ],
    ids=[
        *("empty", "at the limit", "long part", "many parts", "long body", "no end"),
        *("no name", "no disposition", "long header", "name not text", "text", "none"),
    ],
)
async def test_a_form_is_refused_for_what_is_wrong_with_it(
    forms, content, status, code
):
    server, _ = forms
    answered = await server.client.post("/app/form", content=content, headers=FORM)

    assert (status, code) == (answered.status_code, answered.json().get("code"))


@pytest.mark.parametrize(
    "kind",
    ["application/json", "multipart/form-data", "multipart/mixed; boundary=BB"],
)
async def test_what_is_no_form_is_refused(forms, kind):
    server, _ = forms
    answered = await server.client.post(
        "/app/form", content=form_of(), headers={"Content-Type": kind}
    )

    assert 415 == answered.status_code


@pytest.fixture
async def waiting(serve):
    """A server with a route that waits for a job, each time for two seconds more."""
    router = APIRouter()

    @router.get("/app/wait/{job_id}")
    async def wait(request: Request, caller: Reader, job_id: str, seconds: int = 60):
        job = await web.wait(request, caller, job_id, seconds=seconds)
        return web.answer({"state": job.state, "output": job.output})

    return await serve(keyed=True, app_routes=router.routes)


async def test_a_route_waits_for_a_job_in_a_place_of_the_streams(waiting):
    streams = waiting.app.state.server_state.streams
    headers = waiting.shown(await waiting.key("acme"))
    waiting.client.headers.update(headers)
    job = await waiting.submit("test.wait")
    asking = asyncio.ensure_future(waiting.client.get(f"/app/wait/{job['id']}"))
    await waiting.until(lambda: streams.open == 1)
    waiting.release.set()
    answered = await asking

    assert {"state": "succeeded", "output": '{"attempt":1}'} == answered.json()
    assert 0 == streams.open


async def test_a_route_does_not_wait_without_time_or_place(waiting):
    streams = waiting.app.state.server_state.streams
    headers = waiting.shown(await waiting.key("acme"))
    waiting.client.headers.update(headers)
    job = (await waiting.submit("test.wait"))["id"]
    at_once = await waiting.client.get(f"/app/wait/{job}", params={"seconds": 0})
    streams.limit = 0
    full = await waiting.client.get(f"/app/wait/{job}")
    other = waiting.shown(await waiting.key("other"))
    foreign = await waiting.client.get(f"/app/wait/{job}", headers=other)

    assert [200, 200, 404] == [a.status_code for a in (at_once, full, foreign)]
    assert {at_once.json()["state"], full.json()["state"]} <= {"queued", "running"}


async def test_a_page_by_offset_has_a_total(server):
    numbers = sa.union_all(*[sa.select(sa.literal(n).label("n")) for n in range(5)])
    rows = sa.select(numbers.subquery().c.n)
    rows = rows.order_by(rows.selected_columns.n.desc())

    async def page(limit, offset):
        asked = web.OffsetQuery(limit=limit, offset=offset)
        found = await server.backburner.read(lambda v: web.offset_page(v, rows, asked))
        return [row.n for row in found.rows], found.total, found.next_offset

    assert ([4, 3], 5, 2) == await page(2, 0)
    assert ([0], 5, None) == await page(2, 4)
    assert ([], 5, None) == await page(2, 5)
    for limit, offset in ((0, 0), (101, 0), (1, -1), (1, 100_001)):
        with pytest.raises(ValidationError):
            web.OffsetQuery(limit=limit, offset=offset)
