"""What `backburner.web` spares an application's routes: keys, pages, webhooks, 404."""

from datetime import timedelta
from typing import Annotated

import orjson
import pytest
import sqlalchemy as sa
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request

from backburner import Budget, web
from backburner.domain.webhooks.webhook import sign

SECRET = "whsec_" + "c2VjcmV0" * 4
LIMIT = 200
Reader = Annotated[web.Caller, web.require("jobs:read")]
Anybody = Annotated[web.Caller, web.require("public")]


class Song(BaseModel):
    """What is sent."""

    title: str


async def sing(request: Request, _caller: Reader):
    """Say by which key a song was asked for."""
    song = await web.read(request, Song)
    found = web.idempotency_key(request, song)
    return web.answer({"key": None if found is None else [*found]})


async def show(name: str, _caller: Reader):
    """Return a song, if it is the one."""
    return web.answer(web.found("la" if name == "known" else None, "song"))


async def left(request: Request, caller: Reader):
    """Say how much of the caller's budget is left."""
    return web.answer({}, headers=await web.budget_left(request, caller))


async def told(request: Request, _caller: Anybody):
    """Take a webhook."""
    song = await web.read_webhook(request, TypeAdapter(Song), SECRET, limit=LIMIT)
    return web.answer({"title": song.title})


@pytest.fixture
async def songs(serve):
    """A server with the routes above."""
    routes = [
        web.Route("POST", "/songs", sing, "Sing a song", Song),
        web.Route("GET", "/songs/{name}", show, "Look at a song"),
        web.Route("GET", "/left", left, "See what is left", operation_id="see_left"),
        web.Route("POST", "/told", told, "Take a webhook"),
    ]
    return await serve(works=False, app_routes=web.routes_of("songs", routes))


async def test_routes_are_described_with_their_bodies(songs):
    paths = (await songs.client.get("/openapi.json")).json()["paths"]
    sung, seen = paths["/songs"]["post"], paths["/left"]["get"]
    schema = sung["requestBody"]["content"]["application/json"]["schema"]

    assert ("songs_sing", "see_left") == (sung["operationId"], seen["operationId"])
    assert ("Sing a song", ["songs"]) == (sung["summary"], sung["tags"])
    assert {"title"} == schema["properties"].keys()
    assert "requestBody" not in seen


async def test_what_is_not_the_caller_s_is_404(songs):
    known = await songs.client.get("/songs/known")
    other = await songs.client.get("/songs/other")

    assert "la" == known.json()
    assert (404, "SONG_NOT_FOUND") == (other.status_code, other.json()["code"])


async def test_an_idempotency_key_comes_with_the_digest_of_its_body(songs):
    async def key(value, title="la"):
        headers = {} if value is None else {"Idempotency-Key": value}
        return await songs.client.post("/songs", json={"title": title}, headers=headers)

    [first, again, other, none] = [
        (await key(*asked)).json()["key"]
        for asked in (("k",), ('"k"',), ("k", "lo"), (None,))
    ]
    odd = await key("x" * 256)

    assert first == again != other
    assert ("k", "k", None) == (first[0], other[0], none)
    assert (400, "INVALID_INPUT") == (odd.status_code, odd.json()["code"])


GOOD = orjson.dumps({"title": "la"})
LONG = b"x" * (LIMIT + 1)


async def send(server, body=GOOD, *, sent=None, secret=SECRET, age=0, bare=False):
    """Send a webhook; it is signed for `body`, so many seconds ago, or not at all."""
    at = server.backburner.engine.now() // 1000 - age
    signature = sign([secret], "m", at, body)
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    headers = dict(zip(names, ("m", str(at), signature), strict=True))
    return await server.client.post(
        "/told", content=sent or body, headers={} if bare else headers
    )


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"sent": b'{"title": "lo"}'}, 401, "WEBHOOK_SIGNATURE"),
        ({"secret": "whsec_b3RoZXI="}, 401, "WEBHOOK_SIGNATURE"),
        ({"age": 1000}, 401, "WEBHOOK_TIME"),
        ({"bare": True}, 401, "WEBHOOK_HEADERS"),
        ({"bare": True, "sent": LONG}, 401, "WEBHOOK_HEADERS"),
        ({"body": LONG}, 413, "BODY_TOO_LARGE"),
        ({"body": b"[]"}, 400, "WEBHOOK_BODY"),
        ({"body": b"{}"}, 400, "INVALID_INPUT"),
    ],
    ids=["body", "secret", "old", "unsigned", "unread", "large", "list", "shape"],
)
async def test_a_webhook_is_refused_for_what_is_wrong_with_it(
    songs, changes, status, code
):
    refused = await send(songs, **changes)
    taken = await send(songs)

    assert (status, code) == (refused.status_code, refused.json()["code"])
    assert (200, {"title": "la"}) == (taken.status_code, taken.json())


async def test_the_narrowest_token_budget_is_told(songs):
    before = await songs.client.get("/left")
    hour, day = timedelta(hours=1), timedelta(days=1)
    await songs.backburner.budgets.declare(
        [Budget("user", tokens=900, per=day), Budget("tenant", tokens=1000, per=hour)]
    )
    held = await songs.backburner.budgets.reserve(10)
    after = await songs.client.get("/left")

    assert held is not None
    assert "ratelimit" not in before.headers
    assert '"budget";q=900;w=86400' == after.headers["ratelimit-policy"]
    assert after.headers["ratelimit"].startswith('"budget";r=890;t=')


async def test_a_page_by_cursor_ends_where_the_next_begins(server):
    names = sa.union_all(*[sa.select(sa.literal(n).label("id")) for n in "abcde"])
    rows = sa.select(names.subquery())

    async def page(limit, cursor=None):
        asked = web.CursorQuery(limit=limit, cursor=cursor)
        key = rows.selected_columns.id
        found = await server.backburner.read(
            lambda v: web.cursor_page(v, rows, key, asked)
        )
        return [row.id for row in found.rows], found.next_cursor

    assert (["e", "d"], "d") == await page(2)
    assert (["c", "b"], "b") == await page(2, "d")
    assert (["a"], None) == await page(2, "b")
    assert (["b", "a"], None) == await page(2, "c"), "a last page that is full"
    assert ([], None) == await page(2, "a")
