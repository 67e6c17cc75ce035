"""Flows and batches that cannot be are refused whole, and the field is named."""

import pytest

JSON = {"Content-Type": "application/json"}
ECHO = {"capability": "demo.echo", "input": {}}
SLEEP = {"capability": "demo.sleep", "input": {}}
CANARY = "zebra-7781"
NO_MATCH = "the outputs it needs do not match its input"
NEED_NOT = (
    "it needs its own input, because a prerequisite that may fail can have no output"
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def step(name, *needs, **more):
    """Write a step; without an input it takes what it needs."""
    asked = {"name": name, "capability": "demo.echo", "needs": list(needs), **more}
    return asked if needs or "input" in more else {**asked, "input": {}}


async def nothing_came_of(server, path, asked, **options):
    """Ask for what is refused; return the answer, and whether nothing was stored."""
    paths = ("/v1/jobs", "/v1/flows", "/v1/batches")
    before = [(await server.client.get(place)).json() for place in paths]
    response = await server.client.post(path, json=asked, **options)
    after = [(await server.client.get(place)).json() for place in paths]
    assert before == after, "something was stored"
    return response


@pytest.mark.parametrize(
    ("steps", "path", "message"),
    [
        (
            [step("a", "b"), step("b", "c"), step("c", "a")],
            "steps",
            "a → c → b → a is a cycle",
        ),
        ([step("a", "a")], "steps", "a → a is a cycle"),
        ([step("a", "b")], "steps.a", "needs 'b': no such step"),
        ([step("a"), step("b", "a", "a")], "steps.b", "needs 'a' twice"),
        ([step("a"), step("a")], "steps.a", "another step has the same name"),
        ([step("a\nb")], "steps.a\nb", "1 to 100 printable characters"),
        ([step("a", queue="nope")], "steps.a.queue", None),
        ([step("a", input=[])], "steps.a.input", None),
        ([step("a", tags=["\n"])], "steps.a.tags", None),
        (
            [step("a"), step("b", {"step": "a", "otherwise": "continue"})],
            "steps.b",
            NEED_NOT,
        ),
        (
            [
                step("a", input={"seconds": 1}, capability="demo.sleep"),
                step("b", "a", capability="demo.sleep"),
            ],
            "steps.b",
            f"{NO_MATCH}: it has an unexpected field 'slept'",
        ),
        (
            [step("a"), step("b"), step("c", "a", "b", capability="demo.sleep")],
            "steps.c",
            f"{NO_MATCH}: it has an unexpected field 'a'",
        ),
        ([], "steps", None),
        ([step("")], "steps.0.name", None),
        ([step("x" * 101)], "steps.0.name", None),
        ([step("a", 7)], "steps.0.needs.0", None),
        ([step("a", {"step": "b", "otherwise": "dance"})], None, None),
        ([step("a", priority=10)], "steps.0.priority", None),
        ([step("a", max_attempts=0)], "steps.0.max_attempts", None),
        ([step("a", deadline="2100-01-01T00:00:00Z")], "steps.0.deadline", None),
        ([step("a", callback={})], "steps.0.callback", None),
        ([step("a", callback={"url": "x", "endpoint": "y"})], None, None),
        ([step("a", more=1)], "steps.0.more", None),
        ([{"name": "a"}], "steps.0.capability", None),
        ("a", "steps", None),
    ],
)
async def test_a_flow_that_cannot_be_is_refused(standing, steps, path, message):
    response = await nothing_came_of(standing, "/v1/flows", {"steps": steps})
    told = response.json()

    assert (422, "INVALID_INPUT") == (response.status_code, told["code"])
    assert path is None or [path] == [error["path"] for error in told["errors"]]
    assert message is None or [message] == [e["message"] for e in told["errors"]]


async def test_a_capability_that_nobody_knows_is_named_by_its_step(standing):
    steps = [step("a"), step("b", "a", capability="demo.ecko")]
    response = await nothing_came_of(standing, "/v1/flows", {"steps": steps})
    told = response.json()

    assert (404, "UNKNOWN_CAPABILITY") == (response.status_code, told["code"])
    assert "did you mean 'demo.echo'?" in told["detail"]
    assert ["steps.b.capability"] == [error["path"] for error in told["errors"]]


@pytest.mark.parametrize(
    ("asked", "status", "path"),
    [
        (
            {"jobs": [ECHO, {"capability": "nope", "input": {}}]},
            404,
            "jobs.1.capability",
        ),
        ({"jobs": [{**SLEEP, "input": {"seconds": "x"}}]}, 422, "jobs.0.input.seconds"),
        ({"jobs": [{"capability": "demo.echo"}]}, 422, "jobs.0.input"),
        ({"flows": [{"steps": [step("a", "b")]}]}, 422, "flows.0.steps.a"),
        (
            {"flows": [{"steps": [step("a", capability="nope")]}]},
            404,
            "flows.0.steps.a.capability",
        ),
        ({"completion": {"capability": "nope"}}, 404, "completion.capability"),
        (
            {"completion": {"capability": "demo.sleep", "input": {"seconds": -1}}},
            422,
            "completion.input.seconds",
        ),
        ({"completion": {"capability": "demo.sleep"}}, 422, "completion.input"),
        ({"completion": {**ECHO, "queue": "demo"}}, 422, "completion.queue"),
        ({"expected": -1}, 422, "expected"),
        ({"expected": 1_000_001}, 422, "expected"),
        ({"sealed": "yes"}, 422, "sealed"),
        ({"tags": ["x"] * 21}, 422, "tags"),
        ({"more": 1}, 422, "more"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused(standing, asked, status, path):
    response = await nothing_came_of(standing, "/v1/batches", asked)

    assert status == response.status_code
    assert [path] == [error["path"] for error in response.json()["errors"]]


async def test_more_members_than_expected_are_refused(standing):
    asked = {"jobs": [ECHO] * 3, "expected": 2}
    response = await nothing_came_of(standing, "/v1/batches", asked)

    assert (409, "ILLEGAL_TRANSITION") == (
        response.status_code,
        response.json()["code"],
    )


@pytest.mark.parametrize("path", ["/v1/flows", "/v1/batches"])
@pytest.mark.parametrize(
    ("status", "code", "content"),
    [
        (400, "MALFORMED_BODY", b"{"),
        (413, "BODY_TOO_LARGE", b'{"tags": ["' + b"x" * 70_000 + b'"]}'),
        (422, "INVALID_INPUT", b"[]"),
    ],
)
async def test_a_body_that_cannot_be_taken_is_refused(
    standing, path, status, code, content
):
    response = await standing.client.post(path, content=content, headers=JSON)

    assert (status, code) == (response.status_code, response.json()["code"])


@pytest.mark.parametrize("path", ["/v1/flows", "/v1/batches"])
@pytest.mark.parametrize("key", ["x" * 256, ""])
async def test_a_key_that_cannot_be_is_refused(standing, path, key):
    asked = {"steps": [step("a")]} if path == "/v1/flows" else {"jobs": [ECHO]}
    response = await nothing_came_of(
        standing, path, asked, headers={"Idempotency-Key": key}
    )

    assert 422 == response.status_code
    assert ["Idempotency-Key"] == [e["path"] for e in response.json()["errors"]]


async def test_a_filling_under_a_key_that_cannot_be_is_refused(standing):
    batch = (await standing.client.post("/v1/batches", json={"expected": 1})).json()
    path = f"{batch['links']['self']}/members"
    response = await nothing_came_of(
        standing, path, {"jobs": [ECHO]}, headers={"Idempotency-Key": "x" * 256}
    )
    await standing.client.post(batch["links"]["cancel"])

    assert 422 == response.status_code


@pytest.mark.parametrize(
    "query", ["state=dead", "tag=", "limit=0", "cursor=!!!", "other=1"]
)
@pytest.mark.parametrize("path", ["/v1/flows", "/v1/batches"])
async def test_a_list_that_cannot_be_is_refused(standing, path, query):
    response = await standing.client.get(f"{path}?{query}")
    name = query.partition("=")[0]

    assert 422 == response.status_code
    assert [f"query.{name}"] == [error["path"] for error in response.json()["errors"]]


@pytest.mark.parametrize("name", ["x", "%00", "%ff", "flow_" + "9" * 500])
@pytest.mark.parametrize("kind", ["flow", "batch"])
async def test_an_id_that_cannot_be_is_not_found(standing, kind, name):
    path = {"flow": "flows", "batch": "batches"}[kind]
    response = await standing.client.get(f"/v1/{path}/{name}")

    assert 404 == response.status_code
    assert f"{kind.upper()}_NOT_FOUND" == response.json()["code"]


@pytest.mark.parametrize(
    "trace",
    [
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        CANARY,
    ],
)
async def test_a_trace_that_is_not_well_formed_is_left_out(standing, trace):
    response = await standing.client.post(
        "/v1/jobs", json=ECHO, headers={"traceparent": trace}
    )
    job = await standing.backburner.engine.find(response.json()["id"])

    assert (202, None) == (response.status_code, job.traceparent)


async def test_what_users_write_into_flows_and_batches_is_in_no_log_line(standing):
    word = {CANARY: CANARY}
    good = {"steps": [step(CANARY, input=word, tags=[CANARY])], "tags": [CANARY]}
    bad = {"steps": [step(CANARY, capability=CANARY, input=word)]}
    headers = {"Idempotency-Key": CANARY, "traceparent": CANARY}
    answers = [
        await standing.client.post("/v1/flows", json=good, headers=headers),
        await standing.client.post("/v1/flows", json=bad, headers=headers),
        await standing.client.post("/v1/batches", json={"flows": [good]}),
        await standing.client.post("/v1/batches", json={"flows": [bad]}),
        await standing.client.get(f"/v1/flows/{CANARY}"),
        await standing.client.get(f"/v1/batches?tag={CANARY}"),
        await standing.client.get(f"/v1/events?flow={CANARY}"),
    ]

    assert [202, 404, 202, 404, 404, 200, 404] == [a.status_code for a in answers]
    assert CANARY not in standing.log.getvalue()
