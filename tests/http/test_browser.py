"""Pages of other origins: CORS, tokens for streams, and sessions with a cookie."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated

import pytest
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from backburner import Owner, web
from backburner.domain.jobs.job import Tenant
from backburner.http import sessions

PAGE = "https://app.example"
SECRET = "a secret that signs what the browser tests show"  # noqa: S105
BROWSER = {"cors_origins": (PAGE,), "link_secret": SECRET}
UNTRUSTED = {"Origin": "https://evil.example"}
JSON = {"Content-Type": "application/json"}
SPANS = (1, 2, 4, 8, 16, 32)
"""Lives of a token in seconds, one of which is long enough to open a stream by it."""
Writer = Annotated[web.Caller, web.require("jobs:write")]


class Note(BaseModel):
    """What a page sends to an application."""

    text: str


@pytest.fixture
async def keyed(serve):
    return await serve(keyed=True, limits=BROWSER)


async def token_for(server, headers, **subject):
    """Get a stream token over HTTP."""
    answered = await server.client.post(
        "/v1/stream-tokens", json=subject, headers=headers
    )
    assert 201 == answered.status_code, answered.text
    return answered.json()["token"]


async def a_job(server, tenant="acme", **fields):
    """Return the headers of a new key and a job of its that does not end."""
    text = await server.key(tenant, "jobs:read", "jobs:write", **fields)
    headers = server.shown(text)
    asked = {"capability": "test.wait", "input": {}}
    job = await server.client.post("/v1/jobs", json=asked, headers=headers)
    return headers, job.json()["id"]


@asynccontextmanager
async def streaming(server, path, **params):
    """Open an SSE stream as a page does: by its URL, and with no header of ours."""
    async with (
        asyncio.timeout(60),
        server.client.stream("GET", path, params=params) as answered,
    ):
        yield answered


async def status_of(server, path, headers=None, **params):
    """Return the status of an answer, without waiting for the end of a stream."""
    async with server.client.stream(
        "GET", path, params=params, headers=headers
    ) as answered:
        return answered.status_code


async def read_to_the_end(answered):
    """Read a stream until the server ends it."""
    return "".join([chunk async for chunk in answered.aiter_text()])


# --- CORS


async def test_a_listed_origin_may_ask_and_read(keyed):
    asks = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-custom",
    }
    preflight = await keyed.client.options("/v1/jobs", headers=asks)
    headers = keyed.shown(await keyed.key(), Origin=PAGE)
    read = await keyed.client.get("/v1/jobs", headers=headers)
    refused = await keyed.client.get("/v1/jobs", headers={"Origin": PAGE})

    assert (204, b"") == (preflight.status_code, preflight.content)
    assert (
        "authorization, x-custom" == (preflight.headers["access-control-allow-headers"])
    )
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "x-request-id" in preflight.headers
    assert [200, 401] == [read.status_code, refused.status_code]
    for answered in (preflight, read, refused):
        assert PAGE == answered.headers["access-control-allow-origin"]
        assert "true" == answered.headers["access-control-allow-credentials"]
        assert "Origin" in answered.headers["vary"]
    assert "Retry-After" in read.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://app.example.evil.example",
        "http://app.example",
        "https://app.example:8443",
        "null",
    ],
)
async def test_another_origin_may_do_neither(keyed, origin):
    asks = {"Origin": origin, "Access-Control-Request-Method": "GET"}
    preflight = await keyed.client.options("/v1/jobs", headers=asks)
    headers = keyed.shown(await keyed.key(), Origin=origin)
    read = await keyed.client.get("/v1/jobs", headers=headers)

    assert [405, 403] == [preflight.status_code, read.status_code]
    assert "FOREIGN_ORIGIN" == read.json()["code"]
    for answered in (preflight, read):
        assert not [name for name in answered.headers if name.startswith("access-")]


async def test_without_the_setting_no_other_origin_may(serve):
    server = await serve(keyed=True, works=False)
    headers = server.shown(await server.key(), Origin=PAGE)
    read = await server.client.get("/v1/jobs", headers=headers)
    own = {**headers, "Origin": server.url}
    control = await server.client.get("/v1/jobs", headers=own)

    assert [403, 200] == [read.status_code, control.status_code]
    assert "access-control-allow-origin" not in read.headers


# --- stream tokens


async def test_a_token_opens_the_stream_of_its_job_and_nothing_else(keyed):
    headers, job = await a_job(keyed)
    _, other = await a_job(keyed)
    token = await token_for(keyed, headers, job_id=job)
    async with streaming(keyed, f"/v1/jobs/{job}/events", token=token) as answered:
        assert 200 == answered.status_code
        lines = answered.aiter_lines()
        while "job.queued" not in await anext(lines):
            pass
    refused = [
        await status_of(keyed, path, token=token, **more)
        for path, more in (
            (f"/v1/jobs/{other}/events", {}),
            ("/v1/events", {}),
            ("/v1/events", {"tag": "a"}),
            (f"/v1/jobs/{job}", {}),
            ("/v1/jobs", {}),
        )
    ]

    assert [403, 403, 403, 401, 401] == refused


async def test_a_token_is_taken_in_the_url_of_streams_only(keyed):
    described = (await keyed.client.get("/openapi.json")).json()
    taking = {
        path
        for path, methods in described["paths"].items()
        for told in methods.values()
        if {"token": []} in told.get("security", [])
    }
    headers, job = await a_job(keyed)
    token = await token_for(keyed, headers, job_id=job)
    shown = {"Authorization": f"Bearer {token}"}
    by_header = await status_of(keyed, f"/v1/jobs/{job}/events", shown)

    assert {
        "/v1/events",
        "/v1/jobs/{job_id}/events",
        "/v1/flows/{flow_id}/events",
        "/v1/batches/{batch_id}/events",
    } == taking
    assert 401 == by_header


async def test_tokens_for_flows_and_batches(keyed):
    headers, _ = await a_job(keyed)
    step = {"name": "a", "capability": "test.wait", "input": {}}
    asked = {"steps": [step]}
    flow = await keyed.client.post("/v1/flows", json=asked, headers=headers)
    batch = await keyed.client.post("/v1/batches", json={}, headers=headers)
    for kind, made in (("flow", flow.json()["id"]), ("batch", batch.json()["id"])):
        token = await token_for(keyed, headers, **{f"{kind}_id": made})
        plural = {"flow": "flows", "batch": "batches"}[kind]
        async with streaming(
            keyed, f"/v1/{plural}/{made}/events", token=token
        ) as answered:
            assert 200 == answered.status_code
        asked = {kind: made, "token": token}
        async with streaming(keyed, "/v1/events", **asked) as answered:
            assert 200 == answered.status_code


async def publish(server, topic, note, *, to):
    """Publish one event of an application."""
    await server.backburner.transact(
        lambda tx: tx.publish(topic, "note.made", {"note": note}, to=to)
    )


async def test_a_token_for_a_topic_reads_what_is_published_to_its_owner(keyed):
    text = await keyed.key("acme", "jobs:read", user="ann")
    token = await token_for(keyed, keyed.shown(text), topic="notes")
    topic = {"after": 0, "token": token, "topic": "notes"}
    for to, note in (
        (Owner("acme", "ann"), "mine"),
        (Owner("acme", "bob"), "bob's"),
        (Owner("other", "ann"), "another tenant's"),
        (Tenant("other"), "another tenant's"),
    ):
        await publish(keyed, "notes", note, to=to)
    await publish(keyed, "others", "another topic's", to=Owner("acme", "ann"))
    await publish(keyed, "notes", "everybody's here", to=Tenant("acme"))
    seen = []
    async with streaming(keyed, "/v1/events", **topic) as answered:
        async for line in answered.aiter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: "))["data"]["note"])
            if "everybody's here" in seen:
                break
    refused = [
        await status_of(keyed, "/v1/events", token=token, **more)
        for more in ({}, {"topic": "others"}, {"tag": "notes"})
    ]

    assert ["mine", "everybody's here"] == seen
    assert [403, 403, 403] == refused


async def test_what_another_owns_gets_no_token(keyed):
    _, theirs = await a_job(keyed, "other")
    headers, _ = await a_job(keyed)
    answers = [
        await keyed.client.post("/v1/stream-tokens", json=asked, headers=headers)
        for asked in (
            {"job_id": theirs},
            {"flow_id": "flow_none"},
            {"batch_id": "batch_none"},
            {},
            {"job_id": theirs, "flow_id": "flow_none"},
            {"job_id": theirs, "seconds": 3601},
        )
    ]

    assert [404, 404, 404, 422, 422, 422] == [a.status_code for a in answers]


async def test_a_token_reads_as_the_user_that_asked_for_it(keyed):
    text = await keyed.key("acme", "jobs:read", "jobs:write", "users:act")
    ann = keyed.shown(text, **{"X-User-Id": "ann"})
    asked = {"capability": "test.wait", "input": {}}
    job = (await keyed.client.post("/v1/jobs", json=asked, headers=ann)).json()["id"]
    token = await token_for(keyed, ann, job_id=job)
    async with streaming(keyed, f"/v1/jobs/{job}/events", token=token) as answered:
        assert 200 == answered.status_code
    user_1 = await status_of(keyed, f"/v1/jobs/{job}/events", keyed.shown(text))

    assert 404 == user_1, "the key alone is another user"


def tampered(token):
    kid, claims, signature = token.split(".")
    return [
        f"{kid}.{claims}x.{signature}",
        f"{kid}.{claims}.{signature[:-2]}",
        f"00000000.{claims}.{signature}",
        claims,
        "",
        "é.é.é",
    ]


async def test_a_token_that_was_changed_is_refused(keyed):
    headers, job = await a_job(keyed)
    token = await token_for(keyed, headers, job_id=job)
    path = f"/v1/jobs/{job}/events"
    answers = [await status_of(keyed, path, token=text) for text in tampered(token)]

    assert [401] * 6 == answers


async def test_an_open_stream_ends_when_its_token_expires(keyed):
    headers, job = await a_job(keyed)
    path, statuses = f"/v1/jobs/{job}/events", []
    for seconds in SPANS:
        token = await token_for(keyed, headers, job_id=job, seconds=seconds)
        async with streaming(keyed, path, token=token) as answered:
            statuses.append(answered.status_code)
            await read_to_the_end(answered)
        if answered.status_code == 200:
            break
    late = await status_of(keyed, path, token=token)

    assert (200, 401) == (statuses[-1], late)
    state = await keyed.client.get(f"/v1/jobs/{job}", headers=headers)
    assert "running" == state.json()["state"], "the stream ended, not the job"


async def test_an_open_stream_ends_when_its_key_is_revoked(keyed):
    headers, job = await a_job(keyed)
    admin = keyed.shown(await keyed.key("acme"))
    token = await token_for(keyed, headers, job_id=job)
    key_id = headers["Authorization"].split("_")[2]
    path = f"/v1/jobs/{job}/events"
    async with streaming(keyed, path, token=token) as answered:
        lines = answered.aiter_lines()
        while "job.queued" not in await anext(lines):
            pass
        await keyed.client.delete(f"/v1/keys/{key_id}", headers=admin)
        async for _ in lines:
            pass
    late = await status_of(keyed, path, token=token)

    assert 401 == late


async def test_a_page_of_an_unlisted_origin_gets_nothing_by_a_token(keyed):
    headers, job = await a_job(keyed)
    token = await token_for(keyed, headers, job_id=job)
    path = f"/v1/jobs/{job}/events"
    refused = await status_of(keyed, path, UNTRUSTED, token=token)

    assert 403 == refused


async def test_a_token_of_a_server_without_keys_opens_nothing_where_there_are(
    serve, keyed
):
    open_server = await serve(limits=BROWSER, works=False)
    job = (await open_server.submit("test.wait"))["id"]
    token = await token_for(open_server, {}, job_id=job)
    path = f"/v1/jobs/{job}/events"
    async with streaming(open_server, path, token=token) as answered:
        assert 200 == answered.status_code
    refused = await status_of(keyed, path, token=token)

    assert 401 == refused


def socket_of(server, token, **options):
    address = f"{server.url.replace('http', 'ws')}/v1/ws?token={token}"
    return connect(address, proxy=None, **options)


async def test_a_socket_by_a_token_follows_its_subject_only(keyed):
    headers, job = await a_job(keyed)
    _, other = await a_job(keyed)
    token = await token_for(keyed, headers, job_id=job)
    said = []
    async with asyncio.timeout(30), socket_of(keyed, token, origin=PAGE) as socket:
        for asked in ({"job_id": other}, {}, {"tag": "a"}, {"job_id": job}):
            await socket.send(json.dumps({"type": "subscribe", **asked}))
            said.append(json.loads(await socket.recv()))

    assert ["error", "error", "error", "subscribed"] == [told["type"] for told in said]
    assert {"FORBIDDEN"} == {told["problem"]["code"] for told in said[:3]}


async def closed_socket(server, token):
    """Return how the socket of a token was closed, or refused."""
    return await closed(socket_of(server, token))


async def closed(opened):
    """Return how a socket was closed, or the status with which it was refused."""
    try:
        async with asyncio.timeout(60), opened as socket:
            await socket.recv()
    except ConnectionClosed as closed:
        return closed.rcvd.code
    except InvalidStatus as refused:
        return refused.response.status_code


async def test_a_socket_ends_when_its_token_expires(keyed):
    headers, job = await a_job(keyed)
    ends = []
    for seconds in SPANS:
        token = await token_for(keyed, headers, job_id=job, seconds=seconds)
        ends.append(await closed_socket(keyed, token))
        if ends[-1] != 401:
            break
    late = await closed_socket(keyed, token)
    with pytest.raises(InvalidStatus) as foreign:
        await socket_of(keyed, token, origin=UNTRUSTED["Origin"])

    assert (1008, 401) == (ends[-1], late)
    assert 403 == foreign.value.response.status_code


async def test_no_token_or_session_reaches_the_log(keyed, caplog):
    caplog.set_level("INFO")
    text = await keyed.key("acme")
    opened = await keyed.client.post("/v1/session", json={"key": text})
    headers, job = await a_job(keyed)
    token = await token_for(keyed, headers, job_id=job)
    async with streaming(keyed, f"/v1/jobs/{job}/events", token=token):
        pass
    async with socket_of(keyed, token):
        pass
    cookie = opened.headers["set-cookie"].partition(";")[0].partition("=")[2]
    ours = keyed.log.getvalue()
    servers = [r for r in caplog.records if r.name.startswith("uvicorn")]
    logged = ours + "".join(record.getMessage() for record in servers)

    assert "/v1/session" in ours
    for secret in (text, cookie, token, opened.json()["csrf_token"]):
        assert secret not in logged


# --- sessions


async def log_in(server, text, **headers):
    """Log in, and return the session and the header that shows its cookie."""
    answered = await server.client.post(
        "/v1/session", json={"key": text}, headers=headers
    )
    assert 200 == answered.status_code, answered.text
    server.client.cookies.clear()
    cookie = answered.headers["set-cookie"]
    return answered.json(), {"Cookie": cookie.partition(";")[0]}, cookie


async def test_a_session_is_worth_what_its_key_is(keyed):
    text = await keyed.key("acme", "jobs:read", "jobs:write", user="ann")
    session, cookie, _ = await log_in(keyed, text)
    changing = {**cookie, **JSON, "X-CSRF-Token": session["csrf_token"]}
    asked = {"capability": "demo.echo", "input": {}}
    made = await keyed.client.post("/v1/jobs", json=asked, headers=changing)
    jobs = await keyed.client.get("/v1/jobs", headers=cookie)
    keys = await keyed.client.get("/v1/keys", headers=cookie)
    again = await keyed.client.get("/v1/session", headers=cookie)

    assert ("acme", "ann", ["jobs:read", "jobs:write"]) == (
        session["tenant"],
        session["user"],
        session["scopes"],
    )
    assert [202, 200, 403] == [made.status_code, jobs.status_code, keys.status_code]
    assert [made.json()["id"]] == [job["id"] for job in jobs.json()["items"]]
    assert session == again.json()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({**JSON}, id="no token"),
        pytest.param({**JSON, "X-CSRF-Token": "x"}, id="a wrong token"),
        pytest.param({"Content-Type": "text/plain"}, id="a form's media type"),
    ],
)
async def test_a_change_by_cookie_must_show_that_our_page_sends_it(keyed, given):
    text = await keyed.key("acme")
    session, cookie, _ = await log_in(keyed, text)
    if given["Content-Type"] == "text/plain":
        given = {**given, "X-CSRF-Token": session["csrf_token"]}
    content = b'{"capability": "demo.echo", "input": {}}'
    refused = await keyed.client.post(
        "/v1/jobs", content=content, headers={**cookie, **given}
    )
    out = await keyed.client.delete("/v1/session", headers={**cookie, **given})
    jobs = await keyed.client.get("/v1/jobs", headers=cookie)

    assert [403, 403] == [refused.status_code, out.status_code]
    assert "CSRF_REFUSED" == refused.json()["code"]
    assert [] == jobs.json()["items"]


async def test_the_token_of_one_session_is_none_of_another(keyed):
    text = await keyed.key("acme")
    first, _, _ = await log_in(keyed, text)
    _, cookie, _ = await log_in(keyed, text)
    headers = {**cookie, **JSON, "X-CSRF-Token": first["csrf_token"]}
    refused = await keyed.client.post("/v1/batches", json={}, headers=headers)

    assert 403 == refused.status_code


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(serve, keyed):
    text = await keyed.key("acme")
    _, _, secure = await log_in(keyed, text)
    plain = await serve(
        keyed=True, works=False, limits={**BROWSER, "cookie_secure": False}
    )
    _, _, insecure = await log_in(plain, text)

    assert secure.startswith("__Host-backburner=")
    assert "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure" in secure
    assert insecure.startswith("backburner=")
    assert insecure.endswith("; HttpOnly; SameSite=Strict")


async def test_a_session_ends_with_its_key_and_with_log_out(keyed):
    text = await keyed.key("acme")
    session, cookie, _ = await log_in(keyed, text)
    shown = {**cookie, **JSON, "X-CSRF-Token": session["csrf_token"]}
    out = await keyed.client.delete("/v1/session", headers=shown)
    admin = keyed.shown(await keyed.key("acme"))
    key_id = text.split("_")[2]
    before = await keyed.client.get("/v1/jobs", headers=cookie)
    await keyed.client.delete(f"/v1/keys/{key_id}", headers=admin)
    after = [
        await keyed.client.get(path, headers=cookie)
        for path in ("/v1/jobs", "/v1/session")
    ]

    assert 204 == out.status_code
    assert "__Host-backburner=; Path=/; Max-Age=0" in out.headers["set-cookie"]
    assert [200, 401, 401] == [a.status_code for a in (before, *after)]


async def ends_of(server, cookie, session):
    """Return how a stream and a socket of a session ended, and its token's expiry."""
    headers = {**cookie, **JSON, "X-CSRF-Token": session["csrf_token"]}
    asked = {"topic": "news", "seconds": 3600}
    token = await server.client.post("/v1/stream-tokens", json=asked, headers=headers)
    client = server.client
    async with (
        asyncio.timeout(60),
        client.stream("GET", "/v1/events", headers=cookie) as answered,
    ):
        await read_to_the_end(answered)
    return answered.status_code, token.status_code, token.json().get("expires_at")


async def test_a_stream_of_a_session_ends_with_the_session(keyed, monkeypatch):
    text = await keyed.key("acme")
    for seconds in SPANS:
        monkeypatch.setattr(sessions, "SPAN", timedelta(seconds=seconds))
        session, cookie, _ = await log_in(keyed, text)
        status, made, expires_at = await ends_of(keyed, cookie, session)
        if (200, 201) == (status, made):
            break
    late = await keyed.client.get("/v1/jobs", headers=cookie)

    assert (200, 201, 401) == (status, made, late.status_code)
    assert expires_at <= session["expires_at"]


async def test_a_socket_of_a_session_ends_with_the_session(keyed, monkeypatch):
    text = await keyed.key("acme")
    address = f"{keyed.url.replace('http', 'ws')}/v1/ws"
    for seconds in SPANS:
        monkeypatch.setattr(sessions, "SPAN", timedelta(seconds=seconds))
        _, cookie, _ = await log_in(keyed, text)
        end = await closed(connect(address, proxy=None, additional_headers=cookie))
        if end != 401:
            break

    assert 1008 == end


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"key": "bb_live_nothing"}, {}, 401),
        ({"key": "x" * 5000}, {}, 413),
        ({"key": 1}, {}, 422),
        ({}, {}, 422),
        ({"key": "x"}, UNTRUSTED, 403),
        ({"key": "x"}, {"Content-Type": "text/plain"}, 415),
    ],
)
async def test_who_cannot_log_in_gets_no_cookie(keyed, body, headers, status):
    refused = await keyed.client.post(
        "/v1/session", content=json.dumps(body), headers={**JSON, **headers}
    )

    assert status == refused.status_code, refused.text
    assert "set-cookie" not in refused.headers
    if status == 422:
        assert "bb_live" not in refused.text


async def test_a_key_that_is_shown_comes_before_a_cookie(keyed):
    mine = await keyed.key("acme")
    _, cookie, _ = await log_in(keyed, mine)
    other = keyed.shown(await keyed.key("other"))
    asked = {"capability": "demo.echo", "input": {}}
    made = await keyed.client.post("/v1/jobs", json=asked, headers={**cookie, **other})
    seen = await keyed.client.get("/v1/jobs", headers=cookie)

    assert 202 == made.status_code, "a key needs no CSRF token"
    assert [] == seen.json()["items"]


async def test_a_stream_token_is_no_session_and_a_session_no_stream_token(keyed):
    text = await keyed.key("acme")
    _, cookie, _ = await log_in(keyed, text)
    headers, job = await a_job(keyed)
    token = await token_for(keyed, headers, job_id=job)
    session = cookie["Cookie"].partition("=")[2]
    by_token = {"Cookie": f"__Host-backburner={token}"}
    answers = [
        await status_of(keyed, "/v1/jobs", by_token),
        await status_of(keyed, f"/v1/jobs/{job}/events", token=session),
    ]

    assert [401, 401] == answers


async def test_a_socket_by_cookie_is_not_opened_for_a_page_of_another_site(keyed):
    _, cookie, _ = await log_in(keyed, await keyed.key("acme"))
    address = keyed.url.replace("http", "ws") + "/v1/ws"
    options = {"proxy": None, "additional_headers": cookie}
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, origin=UNTRUSTED["Origin"], **options)
    async with (
        asyncio.timeout(30),
        connect(address, origin=keyed.url, **options) as own,
    ):
        await own.send(json.dumps({"type": "subscribe"}))
        said = json.loads(await own.recv())

    assert 403 == refused.value.response.status_code
    assert "subscribed" == said["type"]


async def test_the_routes_of_an_application_are_under_the_same_rules(serve):
    router = APIRouter()

    @router.post("/app/notes")
    async def note(request: Request, caller: Writer):
        read = await web.read(request, Note)
        return web.answer({"text": read.text, "user": caller.owner.user})

    server = await serve(
        keyed=True, works=False, limits=BROWSER, app_routes=router.routes
    )
    text = await server.key("acme", user="ann")
    session, cookie, _ = await log_in(server, text)
    token = {"X-CSRF-Token": session["csrf_token"]}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    by_key = server.shown(text, Origin=PAGE)
    answers = [
        await server.client.post(
            "/app/notes", content=b'{"text": "a"}', headers=headers
        )
        for headers in (
            {**cookie, **JSON},
            {**cookie, **form, **token},
            {**cookie, **JSON, **token, **UNTRUSTED},
            {**cookie, **JSON, **token},
            {**by_key, **form},
        )
    ]

    assert [403, 403, 403, 200, 200] == [answered.status_code for answered in answers]
    assert {"text": "a", "user": "ann"} == answers[3].json() == answers[4].json()
    assert PAGE == answers[4].headers["access-control-allow-origin"]
