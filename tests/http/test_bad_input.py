"""What cannot be taken is refused by a problem that names the rule, not the value."""

import gzip

import httpx2
import pytest

from backburner.http.schemas.jobs import Problem

JSON = {"Content-Type": "application/json"}
CANARY = "zebra-7781"
ECHO_STEP = {"capability": "demo.echo", "input": {}}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def echo(text: bytes) -> bytes:
    """Ask for `demo.echo` with this JSON inside."""
    return b'{"capability":"demo.echo","input":{"x":' + text + b"}}"


@pytest.mark.parametrize(
    ("status", "code", "content"),
    [
        (400, "MALFORMED_BODY", b""),
        (400, "MALFORMED_BODY", b"{"),
        (400, "MALFORMED_BODY", b"not json"),
        (400, "MALFORMED_BODY", b"\xff\xfe"),
        (400, "MALFORMED_BODY", echo(b'"\xff"')),
        (400, "MALFORMED_BODY", echo(b"NaN")),
        (400, "MALFORMED_BODY", echo(b"Infinity")),
        (400, "MALFORMED_BODY", echo(b"1e999")),
        (400, "MALFORMED_BODY", echo(rb'"\ud800"')),
        (400, "MALFORMED_BODY", echo(rb'"\udc00 x"')),
        (400, "MALFORMED_BODY", echo(b'"\xed\xa0\x80"')),
        (400, "MALFORMED_BODY", echo(rb'"\u0000"')),
        (400, "MALFORMED_BODY", echo(rb'{"a\u0000b":1}')),
        (400, "MALFORMED_BODY", echo(b"\x00")),
        (400, "MALFORMED_BODY", echo(b"[" * 63 + b"]" * 63)),
        (400, "MALFORMED_BODY", echo(b"[" * 100 + b"]" * 100)),
        (400, "MALFORMED_BODY", b"[" * 30_000 + b"]" * 30_000),
        (400, "MALFORMED_BODY", echo(b'{"a":' * 100 + b"1" + b"}" * 100)),
        (404, "UNKNOWN_CAPABILITY", b'{"capability":"nope","input":{}}'),
        (413, "BODY_TOO_LARGE", echo(b'"' + b"x" * 70_000 + b'"')),
        (422, "INVALID_INPUT", b"[]"),
        (422, "INVALID_INPUT", b"null"),
        (422, "INVALID_INPUT", b'{"capability":"demo.echo"}'),
        (422, "INVALID_INPUT", b'{"capability":"demo.echo","input":[]}'),
        (422, "INVALID_INPUT", b'{"capability":"","input":{}}'),
        (422, "INVALID_INPUT", b'{"capability":7,"input":{}}'),
        (422, "INVALID_INPUT", b'{"capability":"demo.sleep","input":{"seconds":-1}}'),
        (422, "INVALID_INPUT", b'{"capability":"demo.sleep","input":{"other":1}}'),
    ],
)
async def test_a_body_that_cannot_be_taken_is_refused(standing, status, code, content):
    before = (await standing.client.get("/v1/jobs")).json()
    response = await standing.client.post("/v1/jobs", content=content, headers=JSON)
    after = (await standing.client.get("/v1/jobs")).json()
    problem = Problem.model_validate(response.json())

    assert (status, code) == (response.status_code, problem.code)
    assert "application/problem+json" == response.headers["Content-Type"]
    assert response.headers["X-Request-ID"] == problem.request_id
    assert before == after


@pytest.mark.parametrize(
    "content",
    [
        echo(b"[" * 62 + b"]" * 62),
        echo(rb'"\\u0000"'),
        echo('[1e308, -1e-400, 18446744073709551616, "é😀"]'.encode()),
        echo(b"[" + b"{}," * 1000 + b"{}]"),
    ],
)
async def test_a_body_that_only_looks_odd_is_taken(standing, content):
    response = await standing.client.post("/v1/jobs", content=content, headers=JSON)

    assert "succeeded" == (await standing.ended(response.json()))["state"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("priority", {"priority": 10}),
        ("priority", {"priority": "5"}),
        ("priority", {"priority": True}),
        ("priority", {"priority": 1.5}),
        ("queue", {"queue": ""}),
        ("queue", {"queue": "nobody"}),
        ("run_at", {"run_at": 1700000000}),
        ("run_at", {"run_at": "1700000000"}),
        ("run_at", {"run_at": "tomorrow"}),
        ("run_at", {"run_at": "2030-01-01T00:00:00"}),
        ("run_at", {"run_at": "2030-02-30T00:00:00Z"}),
        ("start_by", {"start_by": "0001-01-01T00:00:00+14:00"}),
        ("deadline", {"deadline": "9999-12-31T23:59:59-14:00"}),
        ("run_at", {"run_at": "9999-12-31T23:59:59.999001Z"}),
        ("start_by", {"start_by": "9999-12-31T23:59:59.999999Z"}),
        ("tags", {"tags": ["x"] * 21}),
        ("tags", {"tags": "x"}),
        ("tags.0", {"tags": [""]}),
        ("tags.0", {"tags": ["x" * 201]}),
        ("tags", {"tags": ["a\nb"]}),
        ("tags.1", {"tags": ["x", "forked-from:../../v1/x"]}),
        ("tags.0", {"tags": ["bulk:retry"]}),
        ("tenant", {"tenant": "other"}),
        ("state", {"state": "succeeded"}),
    ],
)
async def test_a_field_that_is_wrong_is_named(standing, path, field):
    response = await standing.client.post(
        "/v1/jobs", json={"capability": "demo.echo", "input": {}, **field}
    )

    assert 422 == response.status_code
    assert [path] == [error["path"] for error in response.json()["errors"]]


async def test_the_extremes_of_time_are_taken(standing):
    early = await standing.submit(run_at="0001-01-01T00:00:00Z")
    late = await standing.submit(run_at="9999-12-31T23:59:59.999Z")

    assert "0001-01-01T00:00:00.000Z" == early["run_at"]
    assert "9999-12-31T23:59:59.999Z" == late["run_at"]
    assert ("queued", "scheduled") == (early["state"], late["state"])


async def test_a_field_of_the_input_is_named(standing):
    response = await standing.client.post(
        "/v1/jobs", json={"capability": "demo.sleep", "input": {"seconds": CANARY}}
    )

    assert ["input.seconds"] == [error["path"] for error in response.json()["errors"]]
    assert CANARY not in response.text


async def test_a_misspelled_capability_gets_a_suggestion(standing):
    response = await standing.client.post(
        "/v1/jobs", json={"capability": "demo.ehco", "input": {}}
    )

    assert "did you mean 'demo.echo'?" in response.json()["detail"]


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "multipart/x"}]
)
async def test_a_body_that_is_not_said_to_be_json_is_refused(standing, headers):
    response = await standing.client.post("/v1/jobs", content=b"{}", headers=headers)

    assert 415 == response.status_code
    assert "UNSUPPORTED_MEDIA_TYPE" == response.json()["code"]


@pytest.mark.parametrize("key", ["", "x" * 256, "é"])
async def test_a_key_that_cannot_be_is_refused(standing, key):
    response = await standing.client.post(
        "/v1/jobs",
        json={"capability": "demo.echo", "input": {}},
        headers={"Idempotency-Key": key.encode()},
    )

    assert 422 == response.status_code


async def test_a_body_is_counted_as_it_comes_whatever_is_announced(standing):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 16_384

    with pytest.raises(httpx2.TransportError):
        await standing.client.post(
            "/v1/jobs", content=endless(), headers={**JSON, "Connection": "close"}
        )

    assert sent < 10_000


async def test_chunks_within_the_limit_are_a_body(standing):
    async def chunks():
        yield b'{"capability":"demo.echo",'
        yield b'"input":{"a":1}}'

    response = await standing.client.post("/v1/jobs", content=chunks(), headers=JSON)

    assert 202 == response.status_code


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault(standing):
    async def breaking():
        yield b"{"
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        await standing.client.post("/v1/jobs", content=breaking(), headers=JSON)
    await standing.until(lambda: "499" in standing.log.getvalue())

    assert "request failed" not in standing.log.getvalue()


@pytest.mark.parametrize(
    "query",
    [
        "state=dead",
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=!!!",
        "cursor=AAAA",
        "cursor=LTE",
        f"cursor={'0' * 101}",
        "cursor=OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
        "since=yesterday",
        "since=1700000000",
        "tag=",
        "other=1",
    ],
)
async def test_a_list_that_cannot_be_is_refused(standing, query):
    response = await standing.client.get(f"/v1/jobs?{query}")
    name = query.partition("=")[0]

    assert 422 == response.status_code
    assert [f"query.{name}"] == [error["path"] for error in response.json()["errors"]]


@pytest.mark.parametrize("job_id", ["x", "%00", "%ff", "job_" + "9" * 500, "a%0d%0ab"])
async def test_an_id_that_cannot_be_is_not_found(standing, job_id):
    response = await standing.client.get(f"/v1/jobs/{job_id}")

    assert (404, "JOB_NOT_FOUND") == (response.status_code, response.json()["code"])


@pytest.mark.parametrize(
    ("status", "code", "method", "path"),
    [
        (404, "NOT_FOUND", "GET", "/nope"),
        (404, "NOT_FOUND", "POST", "/v1/jobs/"),
        (405, "METHOD_NOT_ALLOWED", "PUT", "/v1/jobs"),
        (405, "METHOD_NOT_ALLOWED", "GET", "/v1/jobs/x/cancel"),
    ],
)
async def test_what_is_not_there_is_a_problem_too(standing, status, code, method, path):
    response = await standing.client.request(method, path)

    assert (status, code) == (response.status_code, response.json()["code"])
    assert "application/problem+json" == response.headers["Content-Type"]


async def test_a_wrong_method_is_told_the_right_ones(standing):
    response = await standing.client.delete("/v1/jobs")

    assert "GET, HEAD, POST" == response.headers["Allow"]


async def test_a_compressed_body_is_refused(standing):
    body = gzip.compress(b'{"capability": "demo.echo", "input": {}}')
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused = await standing.client.post("/v1/jobs", content=body, headers=headers)
    headers["Content-Encoding"] = "identity"
    body = b'{"capability": "demo.echo", "input": {}}'
    taken = await standing.client.post("/v1/jobs", content=body, headers=headers)

    assert (415, "UNSUPPORTED_CONTENT_ENCODING", "identity") == (
        refused.status_code,
        refused.json()["code"],
        refused.headers["Accept-Encoding"],
    )
    assert 202 == taken.status_code


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/jobs", {"capability": "demo.echo", "input": {}}),
        ("/v1/flows", {"steps": [{"name": "a", **ECHO_STEP}]}),
        ("/v1/batches", {}),
    ],
)
async def test_two_idempotency_keys_are_refused_unless_they_are_one(
    standing, path, asked
):
    def named(*keys):
        return [("Idempotency-Key", key) for key in keys]

    two = await standing.client.post(path, json=asked, headers=named("a-1", "a-2"))
    one = await standing.client.post(path, json=asked, headers=named("a-3", "a-3"))

    assert (400, "MALFORMED_REQUEST") == (two.status_code, two.json()["code"])
    assert one.status_code in {201, 202}, one.text


LAST, BEYOND = "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999999Z"


async def test_the_last_time_of_all_is_kept_and_a_later_one_refused(standing):
    client = standing.client
    asked = {"capability": "demo.echo", "input": {}}
    bodies = {
        "/v1/jobs": ({**asked, "run_at": LAST}, "run_at", BEYOND),
        "/v1/flows": ({"steps": [{"name": "a", **asked}]}, "deadline", BEYOND),
        "/v1/keys": ({"name": "k", "scopes": ["jobs:read"]}, "expires_at", BEYOND),
    }
    for path, (body, field, beyond) in bodies.items():
        refused = await client.post(path, json={**body, field: beyond})
        stored = await client.post(path, json={**body, field: LAST})
        listed = await client.get(path)

        assert 422 == refused.status_code, refused.text
        assert stored.status_code in {201, 202}, stored.text
        assert 200 == listed.status_code
        assert LAST in listed.text
    job = (await client.post("/v1/jobs", json=bodies["/v1/jobs"][0])).json()
    changed = await client.patch(f"/v1/jobs/{job['id']}", json={"run_at": BEYOND})
    cancelled = await client.post(f"/v1/jobs/{job['id']}/cancel")

    assert (422, 200) == (changed.status_code, cancelled.status_code)


@pytest.mark.parametrize("time", [BEYOND, LAST, "0001-01-01T00:00:00Z"])
@pytest.mark.parametrize(
    "path", ["jobs?since=", "jobs/count?until=", "usage?since=", "usage?until="]
)
async def test_no_time_in_a_query_breaks_the_server(standing, path, time):
    response = await standing.client.get(f"/v1/{path}{time}")
    activity = await standing.client.get(f"/v1/activity?since={time}")

    status = 422 if time == BEYOND else 200
    assert (status, status) == (response.status_code, activity.status_code)


@pytest.mark.parametrize("start", [f"{CANARY}{'x' * 3_000}", CANARY, 77_817_781])
async def test_a_step_that_does_not_exist_is_not_repeated_in_the_refusal(
    standing, start
):
    job = await standing.ended(await standing.submit())
    refused = await standing.client.post(
        f"/v1/jobs/{job['id']}/fork", json={"from": start}
    )

    assert 422 == refused.status_code
    assert str(start) not in refused.text
    assert len(refused.text) < 2_000


@pytest.mark.parametrize(
    ("method", "path", "kept"),
    [
        ("GET", "/v1/jobs", "no-store"),
        ("HEAD", "/v1/jobs", "no-store"),
        ("POST", "/v1/jobs", "no-store"),
        ("GET", "/v1/audit", "no-store"),
        ("GET", "/v1/nothing", "no-store"),
        ("GET", "/v1/jobs/{job}/result", "no-store"),
        ("GET", "/v1/jobs/{job}", "private, no-cache"),
    ],
)
async def test_no_shared_cache_keeps_an_answer(standing, method, path, kept):
    job = await standing.ended(await standing.submit())
    path = path.format(job=job["id"])
    answer = await standing.client.request(method, path)

    assert kept == answer.headers["Cache-Control"]
    assert "Authorization, Cookie, X-Tenant-Id, X-User-Id" in answer.headers["Vary"]
