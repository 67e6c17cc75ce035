"""Who may call, by which key, and what is told to those who may not."""

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from backburner.domain.auth import key as keys
from backburner.domain.auth.access import ANSWER, SCOPES
from backburner.domain.jobs.job import Owner
from backburner.http.auth import ANY, PUBLIC, scope_of

ECHO = {"capability": "demo.echo", "input": {}}


@pytest.fixture
async def keyed(serve):
    """A server that wants keys."""
    return await serve(keyed=True)


def without_id(response):
    """Return an answer without what differs between any two."""
    told = response.json()
    return response.status_code, {k: v for k, v in told.items() if k != "request_id"}


def operations(server):
    """Return every operation that wants a scope, with that scope."""
    return [
        (method, route.path.replace("{", "").replace("}", ""), scope_of(route))
        for route in server.app.routes
        if getattr(route, "methods", None) and scope_of(route) not in {PUBLIC, ANY}
        for method in route.methods
    ]


async def statuses(server, headers_of):
    """Ask for everything, each with the headers for its scope."""
    return {
        (method, path): (
            await server.client.request(method, path, headers=headers_of(scope))
        ).status_code
        for method, path, scope in operations(server)
        if path not in STREAMS
    }


STREAMS = {"/v1/events"}


async def test_a_good_key_opens_the_api(keyed):
    headers = keyed.shown(await keyed.key())
    response = await keyed.client.post("/v1/jobs", json=ECHO, headers=headers)

    assert 202 == response.status_code


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
async def test_the_scheme_may_be_written_anyhow(keyed, scheme):
    headers = {"Authorization": f"{scheme} {await keyed.key()}"}
    response = await keyed.client.get("/v1/jobs", headers=headers)

    assert 200 == response.status_code


async def test_every_bad_key_gets_one_and_the_same_answer(keyed):
    good = await keyed.key()
    soon = keyed.backburner.engine.now() + 200
    expired = await keyed.key(expires_at=soon)
    revoked = await keyed.key()
    made = keyed.shown(good)
    await keyed.client.delete(f"/v1/keys/{revoked.split('_')[2]}", headers=made)
    await keyed.until(lambda: keyed.backburner.engine.now() > soon)
    shown = [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {good}"},
        {"Authorization": good},
        {"Authorization": f"Bearer {good[:-1]}"},
        {"Authorization": f"Bearer {good}x"},
        {"Authorization": f"Bearer {good[:-1]}_"},
        {"Authorization": f"Bearer {keys.write('AAAAAAAA', bytes(32))}"},
        {"Authorization": f"Bearer {keys.write(good.split('_')[2], bytes(32))}"},
        {"Authorization": f"Bearer {expired}"},
        {"Authorization": f"Bearer {revoked}"},
        {"X-Api-Key": good},
        {"Cookie": f"key={good}"},
    ]
    answers = [await keyed.client.get("/v1/jobs", headers=headers) for headers in shown]
    in_url = [
        await keyed.client.get(f"/v1/jobs?{name}={good}")
        for name in ("key", "token", "access_token", "api_key")
    ]

    expected = without_id(answers[0])
    assert (401, "UNAUTHORIZED") == (expected[0], expected[1]["code"])
    assert [expected] * len(answers) == list(map(without_id, answers))
    assert [expected] * len(in_url) == list(map(without_id, in_url))
    assert {"Bearer"} == {a.headers["WWW-Authenticate"] for a in answers}


async def test_nothing_but_the_public_is_shown_without_a_key(keyed):
    asked = await statuses(keyed, lambda _scope: {})
    public = [
        (await keyed.client.get(path)).status_code
        for path in ("/", "/livez", "/readyz", "/docs", "/openapi.json")
    ]

    assert {401} == set(asked.values())
    assert [200] * 5 == public


async def test_a_key_with_every_scope_but_the_right_one_is_refused(keyed):
    others = {
        scope: keyed.shown(await keyed.key("default", *(SCOPES - {scope, ANSWER})))
        for scope in SCOPES
    }
    asked = await statuses(keyed, others.__getitem__)

    assert {403} == set(asked.values())


async def test_a_key_with_the_right_scope_alone_is_admitted(keyed):
    rights = {scope: keyed.shown(await keyed.key("default", scope)) for scope in SCOPES}
    asked = await statuses(keyed, rights.__getitem__)

    assert not {401, 403} & set(asked.values())


async def test_a_key_acts_as_its_user(keyed):
    headers = keyed.shown(await keyed.key("t", "jobs:write", user="ann"))
    job = (await keyed.client.post("/v1/jobs", json=ECHO, headers=headers)).json()
    found = await keyed.backburner.engine.find(job["id"], Owner("t", "ann"))

    assert job["id"] == found.id


async def test_a_key_without_a_user_acts_as_user_1_of_its_tenant(keyed):
    headers = keyed.shown(await keyed.key("t"))
    job = (await keyed.client.post("/v1/jobs", json=ECHO, headers=headers)).json()
    found = await keyed.backburner.engine.find(job["id"], Owner("t", "1"))

    assert job["id"] == found.id


async def test_a_key_with_users_act_names_the_user(keyed):
    key = await keyed.key("t", "jobs:write", "jobs:read", "users:act")
    ann = keyed.shown(key, **{"X-User-Id": "ann"})
    bob = keyed.shown(key, **{"X-User-Id": "bob"})
    job = (await keyed.client.post("/v1/jobs", json=ECHO, headers=ann)).json()
    own = await keyed.client.get(f"/v1/jobs/{job['id']}", headers=ann)
    foreign = await keyed.client.get(f"/v1/jobs/{job['id']}", headers=bob)
    nobody = await keyed.client.get(f"/v1/jobs/{job['id']}", headers=keyed.shown(key))

    assert [200, 404, 404] == [r.status_code for r in (own, foreign, nobody)]


@pytest.mark.parametrize("fields", [{}, {"user": "ann"}])
async def test_without_users_act_nobody_can_be_named(keyed, fields):
    headers = keyed.shown(await keyed.key("t", "jobs:read", **fields))
    response = await keyed.client.get("/v1/jobs", headers=headers | {"X-User-Id": "1"})

    assert (403, "FORBIDDEN") == (response.status_code, response.json()["code"])


@pytest.mark.parametrize("user", ["", "a b", "x" * 201, "é"])
async def test_a_user_that_cannot_be_is_refused(keyed, user):
    key = await keyed.key("t", "jobs:read", "users:act")
    headers = {"Authorization": f"Bearer {key}", "X-User-Id": user.encode()}
    response = await keyed.client.get("/v1/jobs", headers=headers)

    assert (422, "INVALID_INPUT") == (response.status_code, response.json()["code"])


async def test_a_key_is_made_shown_once_used_and_revoked(keyed):
    root = keyed.shown(await keyed.key("default", *SCOPES))
    asked = {"name": "shop", "scopes": ["jobs:read"], "user": "ann"}
    made = await keyed.client.post("/v1/keys", json=asked, headers=root)
    text = made.json()["key"]
    before = await keyed.client.get("/v1/jobs", headers=keyed.shown(text))
    listed = await keyed.client.get("/v1/keys", headers=root)
    path = f"/v1/keys/{made.json()['id']}"
    revoked = [await keyed.client.delete(path, headers=root) for _ in range(2)]
    after = await keyed.client.get("/v1/jobs", headers=keyed.shown(text))
    relisted = await keyed.client.get("/v1/keys", headers=root)

    assert (201, "no-store") == (made.status_code, made.headers["Cache-Control"])
    assert [200, 204, 204, 401] == [
        answer.status_code for answer in (before, *revoked, after)
    ]
    assert text not in listed.text + relisted.text
    assert text.split("_")[3] not in listed.text
    [told] = [key for key in relisted.json()["items"] if key["name"] == "shop"]
    assert ("ann", ["jobs:read"]) == (told["user"], told["scopes"])
    assert None not in (told["revoked_at"], told["last_used_at"])


async def test_a_key_expires(keyed):
    now = keyed.backburner.engine.now
    later = keyed.shown(await keyed.key(expires_at=now() + 3_600_000))
    soon = now() + 300
    key = keyed.shown(await keyed.key(expires_at=soon))
    await keyed.client.get("/v1/jobs", headers=key)  # it is cached from here on
    await keyed.until(lambda: now() > soon)
    ended = await keyed.client.get("/v1/jobs", headers=key)
    good = await keyed.client.get("/v1/jobs", headers=later)

    assert (401, 200) == (ended.status_code, good.status_code)


async def test_nobody_gives_a_scope_that_they_do_not_have(keyed):
    headers = keyed.shown(await keyed.key("t", "keys:admin", "jobs:read"))
    asked = {"name": "more", "scopes": ["jobs:read", "jobs:write"]}
    response = await keyed.client.post("/v1/keys", json=asked, headers=headers)

    assert (403, "FORBIDDEN") == (response.status_code, response.json()["code"])


async def test_a_key_of_another_tenant_is_not_found_and_stays_good(keyed):
    root, foreign = await keyed.key("a"), await keyed.key("b")
    path = f"/v1/keys/{foreign.split('_')[2]}"
    refused = await keyed.client.delete(path, headers=keyed.shown(root))
    unknown = await keyed.client.delete("/v1/keys/x", headers=keyed.shown(root))
    used = await keyed.client.get("/v1/jobs", headers=keyed.shown(foreign))

    assert without_id(unknown) == without_id(refused)
    assert (404, "KEY_NOT_FOUND") == (refused.status_code, refused.json()["code"])
    assert 200 == used.status_code


async def test_what_administrators_do_is_written_down(keyed):
    key = await keyed.key("t")
    root = keyed.shown(key, **{"X-Request-ID": "mine"})
    keyed.client.headers.update(keyed.shown(key))
    job, _other = await keyed.failed(), await keyed.failed()
    asked = {"name": "shop", "scopes": ["jobs:read"]}
    made = (await keyed.client.post("/v1/keys", json=asked, headers=root)).json()
    await keyed.client.delete(f"/v1/keys/{made['id']}", headers=root)
    await keyed.client.post(f"/v1/dead-letters/{job['id']}/retry", headers=root)
    await keyed.client.post(
        "/v1/dead-letters/retry", json={"dry_run": True}, headers=root
    )
    await keyed.client.post(
        "/v1/dead-letters/retry", json={"queue": "demo"}, headers=root
    )
    await keyed.client.post("/v1/dead-letters/job_x/retry", headers=root)
    told = (await keyed.client.get("/v1/audit?limit=4")).json()["items"]
    older = await keyed.client.get(f"/v1/audit?before={told[-1]['seq']}")

    key_id = key.split("_")[2]
    assert [
        ("dead_letters.retried", '{"queue":"demo","limit":100}'),
        ("dead_letter.retried", job["id"]),
        ("key.revoked", made["id"]),
        ("key.created", made["id"]),
    ] == [(entry["action"], entry["target"]) for entry in told]
    assert {(key_id, "mine")} == {(e["actor"], e["request_id"]) for e in told}
    assert [("tests", key_id)] == [
        (entry["actor"], entry["target"]) for entry in older.json()["items"]
    ]


async def test_a_socket_wants_the_same_header(keyed):
    url = keyed.url.replace("http", "ws") + "/v1/ws"
    key = await keyed.key()
    with pytest.raises(InvalidStatus) as refused:
        await connect(url, proxy=None)
    with pytest.raises(InvalidStatus) as in_url:
        await connect(f"{url}?key={key}", proxy=None)
    async with connect(url, proxy=None, additional_headers=keyed.shown(key)) as socket:
        await socket.send('{"type": "subscribe"}')
        granted = await socket.recv()

    assert [401, 401] == [told.value.response.status_code for told in (refused, in_url)]
    assert '"subscribed"' in granted


async def test_no_key_is_in_any_log_line(keyed):
    key = await keyed.key()
    unknown = keys.write("ZZZZZZZZ", bytes(32))
    asked = {"name": "shop", "scopes": ["jobs:read"]}
    made = await keyed.client.post("/v1/keys", json=asked, headers=keyed.shown(key))
    for shown in (key, key[:-1], unknown, made.json()["key"]):
        await keyed.client.get("/v1/jobs", headers=keyed.shown(shown))
        await keyed.client.get(f"/v1/jobs?key={shown}")
        await keyed.client.get(f"/v1/jobs/{shown}", headers=keyed.shown(key))

    log = keyed.log.getvalue()
    secrets = [text.split("_")[3] for text in (key, unknown, made.json()["key"])]
    assert log.count('"event": "request"') > 12
    assert [] == [secret for secret in secrets if secret in log]
