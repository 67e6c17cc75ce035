"""
A crawler over the described API: one tenant, with every id of another in its hands.

It runs from openapi.json, so a new route is crawled without being named here.
"""

import asyncio
from dataclasses import dataclass

import pytest

from backburner.domain.auth.access import ACT, PLATFORM_SCOPES, possible

CANARY = "zebra-4471"
MINE = "giraffe-2209"
STREAM = "text/event-stream"
WEBHOOKS = {"webhook_secret": "a secret that only these tenants have"}


@dataclass
class Tenant:
    """A caller, and every text that is its own."""

    headers: dict
    ids: list
    texts: list
    words: list
    """The texts, and others by which one may search."""


@dataclass
class Answer:
    """What came of one request."""

    asked: str
    status: int
    text: str


async def a_tenant(server, name, word):
    """Fill a tenant with one of everything, each bearing the word."""
    headers = server.shown(await server.key(name, *(possible(name, None) - {ACT})))
    server.client.headers.update(headers)
    marked = {"tags": [word]}
    done = await server.ended(await server.submit(value={word: word}, **marked))
    waiting = await server.submit(run_at="2100-01-01T00:00:00Z", **marked)
    failed = await server.failed()
    groups = (await server.client.get("/v1/dead-letters")).json()["items"]
    asked = {"name": word, "scopes": ["jobs:read"], "user": word}
    granting = server.shown(await server.key(name, *possible(name, None)))
    key = await server.client.post("/v1/keys", json=asked, headers=granting)
    key = key.json()
    asked = {"url": f"https://hooks.example/{word}"}
    endpoint = (await server.client.post("/v1/endpoints", json=asked)).json()
    grouped, inside = await groups_of(server, word)
    ids = [done["id"], waiting["id"], failed["id"], *grouped, key["id"]]
    ids += [endpoint["id"]]
    own = headers["Authorization"].split("_")[2]
    server.client.headers.pop("Authorization")
    texts = [*ids, own, word, key["key"], *endpoint["secrets"]]
    marks = [group["fingerprint"] for group in groups]
    return Tenant(headers, [*ids, own], [*texts, *inside], [*texts, *marks])


async def groups_of(server, word):
    """Make a flow and a batch that bear the word; return them and what is inside."""
    later = {"capability": "demo.echo", "input": {word: word}, "tags": [word]}
    steps = [{"name": word, "run_at": "2100-01-01T00:00:00Z", **later}]
    flow = await server.client.post("/v1/flows", json={"steps": steps, "tags": [word]})
    asked = {"jobs": [later], "flows": [{"steps": steps}], "tags": [word]}
    batch = await server.client.post("/v1/batches", json=asked)
    (step,) = flow.json()["steps"]
    added = batch.json()["added"]
    for job in added["jobs"]:
        await server.ended({"links": {"self": f"/v1/jobs/{job}"}})
    ids = [flow.json()["id"], batch.json()["id"]]
    return ids, [step["id"], *added["jobs"], *added["flows"]]


@pytest.fixture
async def world(serve):
    """A server with two tenants in it, and what it says of itself."""
    server = await serve(keyed=True, webhooks=WEBHOOKS)
    ours = await a_tenant(server, "ours", MINE)
    theirs = await a_tenant(server, "theirs", CANARY)
    described = (await server.client.get("/openapi.json")).json()
    return server, described, ours, theirs


def operations(described):
    """Return the operations that want a key which a tenant can have."""
    return [
        (path, method, told)
        for path, methods in described["paths"].items()
        for method, told in methods.items()
        if "security" in told and not PLATFORM_SCOPES & {*told["security"][0]["key"]}
    ]


def body_of(described, told):
    """Return the first example of what an operation reads."""
    if "requestBody" not in told:
        return None
    content = told["requestBody"]["content"].get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    examples = described["components"]["schemas"].get(name, {}).get("examples")
    return examples[0] if examples else {}


def is_stream(told):
    return STREAM in told["responses"].get("200", {}).get("content", {})


def filled(path, value):
    """Put one value into every place of a path."""
    parts = path.split("/")
    return "/".join(value if part.startswith("{") else part for part in parts)


async def ask(server, tenant, method, path, *, body=None, params=None):
    """Send a request and return the whole answer, headers included."""
    response = await server.client.request(
        method, path, headers=tenant.headers, json=body, params=params
    )
    told = f"{method} {path} {params}"
    return Answer(told, response.status_code, f"{response.headers}{response.text}")


async def with_their_ids(server, described, ours, theirs):
    """Ask for everything that has an id in its path, by each of their ids."""
    return [
        await ask(
            server,
            ours,
            method,
            filled(path, value),
            body=body_of(described, told),
        )
        for path, method, told in operations(described)
        if "{" in path
        for value in theirs.ids
    ]


NEEDED = {"/v1/budgets/history": {"scope": "user", "of": "acme/ann"}}
"""Parameters without which a path answers 422."""


async def without_ids(server, described, ours):
    """Ask for everything else that is read, plainly."""
    return [
        await ask(server, ours, method, path)
        for path, method, told in operations(described)
        if method == "get" and "{" not in path and not is_stream(told)
        if path not in NEEDED
    ]


async def with_their_words(server, described, ours, theirs):
    """Ask again with each of their texts in each parameter of the query."""
    return [
        await ask(
            server,
            ours,
            method,
            path,
            params={**NEEDED.get(path, {}), parameter["name"]: text},
        )
        for path, method, told in operations(described)
        if method == "get" and "{" not in path and not is_stream(told)
        for parameter in told.get("parameters", [])
        if parameter["in"] == "query"
        for text in theirs.words
    ]


async def streams_by_their_words(server, described, ours, theirs):
    """Ask each endless stream for something by each of their ids."""
    return [
        await ask(server, ours, method, path, params={parameter["name"]: text})
        for path, method, told in operations(described)
        if is_stream(told) and "{" not in path
        for parameter in told.get("parameters", [])
        if parameter["name"] in {"flow", "batch"}
        for text in theirs.ids
    ]


async def streamed(server, described, tenant, last):
    """Read every endless stream from its beginning until its newest job shows."""
    read = ""
    for path, _, told in operations(described):
        if is_stream(told) and "{" not in path:
            read += await streamed_until(server, tenant, path, last)
    return read


async def streamed_until(server, tenant, path, last):
    read = ""
    async with (
        asyncio.timeout(60),
        server.client.stream(
            "GET", path, params={"after": 0}, headers=tenant.headers
        ) as response,
    ):
        async for chunk in response.aiter_text():
            read += chunk
            if last in read:
                break
    return read


KINDS = {"job_": "jobs", "flow_": "flows", "batch_": "batches"}


async def own_things(server, tenant):
    """Return a tenant's jobs, flows and batches as it sees them itself."""
    places = [
        f"/v1/{KINDS[kind]}/{name}"
        for name in tenant.ids
        for kind in KINDS
        if name.startswith(kind)
    ]
    return [
        (await server.client.get(place, headers=tenant.headers)).json()
        for place in places
    ]


def leaked(answers, theirs):
    """Return the requests whose answer holds anything of theirs."""
    return [
        answer.asked
        for answer in answers
        if any(text in answer.text for text in theirs.texts)
    ]


async def test_by_anothers_id_nothing_is_found_on_any_route(world):
    server, described, ours, theirs = world
    answers = await with_their_ids(server, described, ours, theirs)

    assert len(answers) >= 8 * len(theirs.ids)
    assert [] == [answer for answer in answers if answer.status != 404]
    assert [] == leaked(answers, theirs)


async def test_no_list_shows_anything_of_another(world):
    server, described, ours, theirs = world
    plain = await without_ids(server, described, ours)
    searching = await with_their_words(server, described, ours, theirs)

    assert {200} == {answer.status for answer in plain}
    assert {200, 404, 422} >= {answer.status for answer in searching}
    assert [] == leaked([*plain, *searching], theirs)


async def test_no_stream_tells_anything_of_another(world):
    server, described, ours, theirs = world
    server.client.headers.update(ours.headers)
    last = await server.ended(await server.submit())
    told = await streamed(server, described, ours, last["id"])

    assert ours.ids[0] in told
    assert [] == leaked([Answer("streams", 200, told)], theirs)


async def test_no_stream_is_about_anything_of_another(world):
    server, described, ours, theirs = world
    answers = await streams_by_their_words(server, described, ours, theirs)

    assert len(answers) >= 2 * len(theirs.ids)
    assert {404} == {answer.status for answer in answers}
    assert [] == leaked(answers, theirs)


async def tokens_for(server, tenant, ids):
    """Ask for a stream token for each thing, by the field that its id tells."""
    return [
        await server.client.post(
            "/v1/stream-tokens", json={field: name}, headers=tenant.headers
        )
        for name in ids
        for field in ("job_id", "flow_id", "batch_id")
        if name.startswith(field.removesuffix("id"))
    ]


def streams_of(described, things):
    """Return every stream of one thing, of each of these, and those of all."""
    return [
        filled(path, name)
        for path, _, told in operations(described)
        if is_stream(told)
        for name in (things if "{" in path else [""])
    ]


async def opened_by(server, path, token):
    """Return the status of a stream that a token is to open, unread."""
    async with server.client.stream("GET", path, params={"token": token}) as answered:
        return answered.status_code


async def test_no_token_opens_anything_of_another(world):
    server, described, ours, theirs = world
    refused = await tokens_for(server, ours, theirs.ids)
    made = await tokens_for(server, ours, ours.ids)
    opened = [
        await opened_by(server, path, told.json()["token"])
        for told in made
        for path in streams_of(described, theirs.ids)
    ]

    assert len(refused) == len(made) >= 5
    assert {404} == {answered.status_code for answered in refused}
    assert {201} == {answered.status_code for answered in made}
    assert {403} == set(opened)


async def test_what_is_anothers_is_as_it_was_after_the_crawl(world):
    server, described, ours, theirs = world
    before = await own_things(server, theirs)
    await with_their_ids(server, described, ours, theirs)
    server.client.headers.update(ours.headers)
    retried = await server.client.post("/v1/dead-letters/retry", json={})
    server.client.headers.pop("Authorization")
    after = await own_things(server, theirs)

    assert 1 == retried.json()["retried"]
    assert before == after
    assert ["succeeded", "scheduled", "failed", "running", "open"] == [
        thing["state"] for thing in after[:5]
    ]


@pytest.mark.thorough
async def test_the_crawler_would_see_a_leak(world):
    server, described, _, theirs = world
    lists = await without_ids(server, described, theirs)
    own = await with_their_ids(server, described, theirs, theirs)

    assert {200, 202, 204, 404} <= {answer.status for answer in own}
    names = ("jobs", "flows", "batches", "keys", "audit")
    assert {f"get /v1/{name} None" for name in names} <= set(leaked(lists, theirs))
