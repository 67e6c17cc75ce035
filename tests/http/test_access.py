"""Request ids, log lines, and who may do what."""

import orjson
import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute

from backburner.domain.auth.access import ACT, ACT_ACROSS, ANSWER, READ_TENANT
from backburner.domain.errors import CallerError, StoreUnavailable
from backburner.domain.jobs.job import Owner
from backburner.http import problems
from backburner.http.auth import ANY, DEVELOPER, PUBLIC, SCOPES, Caller, require
from backburner.http.routes.usage import EVERYONE

CANARY = "zebra-7781"


def scopes_of(route):
    """Return the scopes that a route declares."""
    return [
        dependency.call.scope
        for dependency in route.dependant.dependencies
        if hasattr(dependency.call, "scope")
    ]


def lines_of(server):
    """Return the log's lines about requests."""
    lines = [orjson.loads(line) for line in server.log.getvalue().splitlines()]
    return [line for line in lines if line["event"] == "request"]


async def test_every_route_declares_one_scope_that_there_is(server):
    routes = server.app.routes
    declared = [(route.path, scopes_of(route)) for route in routes]

    assert {APIRoute, APIWebSocketRoute} >= {
        next(c for c in (APIRoute, APIWebSocketRoute) if isinstance(route, c))
        for route in routes
    }
    assert {1} == {len(scopes) for _, scopes in declared}
    # They widen what a route shows, or stand for the scope that it declares.
    extended = {ACT, ACT_ACROSS, EVERYONE, READ_TENANT, ANSWER}
    needed = {scope for _, scopes in declared for scope in scopes}
    assert (SCOPES | {ANY}) - extended == needed
    assert {"/", "/livez", "/readyz", "/docs", "/openapi.json"} | {
        "/docs/docs.js",
        "/docs/docs.css",
        "/ui",
        "/ui/{path:path}",
        "/v1/blobs/{blob_id}",
        "/v1/files/{file_id}",
        "/v1/session",
    } == {path for path, scopes in declared if scopes == [PUBLIC]}


def test_a_scope_that_there_is_not_cannot_be_declared():
    with pytest.raises(ValueError, match="'jobs:dance' is not a scope"):
        require("jobs:dance")


async def test_a_caller_without_the_scope_is_refused(serve):
    async def authenticate(_connection):
        return Caller(DEVELOPER.owner, frozenset({"jobs:read"}))

    server = await serve(authenticate=authenticate)
    read = await server.client.get("/v1/jobs")
    asked = {"capability": "demo.echo", "input": {}}
    written = await server.client.post("/v1/jobs", json=asked)

    assert 200 == read.status_code
    assert (403, "FORBIDDEN") == (written.status_code, written.json()["code"])


async def test_two_callers_see_their_own_jobs_only(serve):
    async def authenticate(connection):
        owner = Owner("t", connection.headers["x-user"])
        return Caller(owner, SCOPES - {READ_TENANT})

    server = await serve(authenticate=authenticate)
    server.client.headers["X-User"] = "ann"
    job = await server.failed()
    server.client.headers["X-User"] = "bob"
    paths = ["/v1/jobs", "/v1/dead-letters"]
    lists = [(await server.client.get(path)).json()["items"] for path in paths]
    found = await server.client.get(job["links"]["self"])
    retried = await server.client.post("/v1/dead-letters/retry", json={})

    assert [[], []] == lists
    assert 404 == found.status_code
    assert 0 == retried.json()["retried"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1"])
async def test_a_page_of_another_origin_is_refused(server, origin):
    response = await server.client.post("/v1/jobs/x/cancel", headers={"Origin": origin})

    assert (403, "FOREIGN_ORIGIN") == (response.status_code, response.json()["code"])


async def test_a_page_of_our_own_may_submit(server):
    response = await server.client.post(
        "/v1/jobs",
        json={"capability": "demo.echo", "input": {}},
        headers={"Origin": server.url},
    )

    assert 202 == response.status_code


@pytest.mark.parametrize(
    ("status", "host"),
    [
        (200, "localhost"),
        (200, "localhost:8765"),
        (200, "[::1]:8765"),
        (200, "127.0.0.1"),
        (403, "evil.example:8765"),
        (403, "localhost.evil.example"),
        (403, ""),
        (403, "[oops"),
    ],
)
async def test_without_keys_only_this_machines_names_are_answered(server, status, host):
    response = await server.client.get("/v1/jobs", headers={"Host": host})

    assert status == response.status_code


@pytest.mark.parametrize("given", ["a", "A-b_9", "x" * 64])
async def test_a_well_formed_request_id_is_kept(server, given):
    response = await server.client.get("/livez", headers={"X-Request-ID": given})

    assert given == response.headers["X-Request-ID"]


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a.b", "é", 'a"b'])
async def test_any_other_request_id_is_replaced(server, given):
    response = await server.client.get(
        "/livez", headers={"X-Request-ID": given.encode()}
    )

    assert given != response.headers["X-Request-ID"]
    assert response.headers["X-Request-ID"].isascii()


async def test_request_ids_do_not_repeat(server):
    made = [
        (await server.client.get("/livez")).headers["X-Request-ID"] for _ in range(5)
    ]

    assert 5 == len(set(made))


async def test_a_request_is_one_line_that_names_the_route_and_not_the_path(server):
    await server.client.get(
        f"/v1/jobs/{CANARY}?{CANARY}={CANARY}", headers={"X-Request-ID": "mine"}
    )
    (line,) = lines_of(server)

    assert {
        "event",
        "level",
        "timestamp",
        "method",
        "route",
        "status",
        "duration_ms",
        "request_id",
    } == line.keys()
    assert ("GET", "/v1/jobs/{job_id}", 404, "mine") == (
        line["method"],
        line["route"],
        line["status"],
        line["request_id"],
    )


async def test_what_users_write_is_not_in_logs_metrics_or_errors(server):
    fields = {"tags": [CANARY], "input": {CANARY: CANARY}}
    asked = [
        {"capability": "demo.echo", **fields},
        {"capability": CANARY, **fields},
        {"capability": "demo.sleep", "input": {"seconds": CANARY}},
        {"capability": "demo.echo", "input": {}, "queue": CANARY},
        {"capability": "demo.echo", "input": {}, "run_at": CANARY},
        {"capability": "demo.echo", "input": {}, "priority": CANARY},
    ]
    headers = {"Idempotency-Key": CANARY, "Prefer": f"{CANARY}=1", "User-Agent": CANARY}
    submitted = [
        await server.client.post("/v1/jobs", json=ask, headers=headers) for ask in asked
    ]
    paths = [
        f"/{CANARY}",
        f"/v1/jobs/{CANARY}",
        f"/v1/jobs?state={CANARY}",
        f"/v1/jobs?cursor={CANARY}",
        f"/v1/jobs?since={CANARY}",
    ]
    got = [await server.client.get(path) for path in paths]
    broken = await server.client.post(
        "/v1/jobs", content=CANARY, headers={"Content-Type": "application/json"}
    )
    await server.ended(submitted[0].json())
    metrics = await server.client.get("/metrics")
    refused = [*submitted[1:], *got, broken]

    assert 202 == submitted[0].status_code
    assert {400, 404, 422} == {response.status_code for response in refused}
    assert [] == [response.text for response in refused if CANARY in response.text]
    assert CANARY not in metrics.text
    assert CANARY not in server.log.getvalue()


def all_kinds(kind):
    """Return the subclasses of an error, and theirs."""
    return {kind}.union(*map(all_kinds, kind.__subclasses__()))


def test_every_error_that_a_caller_may_see_has_its_status():
    seen = (all_kinds(CallerError) - {CallerError}) | all_kinds(StoreUnavailable)
    # Applications answer their own errors; which are loaded depends on other tests.
    ours = {kind for kind in seen if kind.__module__.startswith("backburner.")}

    assert set() == ours - problems.TABLE.keys()
