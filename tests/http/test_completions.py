"""The completion of a job over HTTP."""

import pytest

from backburner import Context, capability
from backburner.domain.blobs.blob import LARGE

ECHO = {"capability": "demo.echo", "input": {"book": "red"}}
BAD = {"times": 1, "error": "permanent"}


@capability("ours.only")
async def hidden(_ctx: Context, value: dict) -> dict:
    return value


async def completions(server, job, headers=None):
    """Return the completions of a job when they have ended, newest first."""
    found = await server.client.get(
        "/v1/jobs", params={"tag": f"completion:{job['id']}"}, headers=headers
    )
    return [await server.ended(job) for job in found.json()["items"]]


async def test_a_job_is_followed_by_its_completion(server):
    receipt = await server.submit("demo.echo", {"n": 1}, completion=ECHO)
    job = await server.ended(receipt)

    [after] = await completions(server, job)
    told = {
        "id": job["id"],
        "capability": "demo.echo",
        "state": "succeeded",
        "generation": 0,
        "output": {"n": 1},
    }
    assert {"book": "red", "job": told} == after["output"] == after["input"]
    assert (job["user"], job["request_id"]) == (after["user"], after["request_id"])


async def test_a_job_that_ends_again_is_followed_again(server):
    receipt = await server.submit("demo.fail", BAD, completion=ECHO)
    await server.ended(receipt)
    await server.client.post(f"/v1/jobs/{receipt['id']}/retry")
    job = await server.ended(receipt)

    [second, first] = [
        after["output"]["job"] for after in await completions(server, job)
    ]
    assert ("failed", 0, "PERMANENT") == (
        first["state"],
        first["generation"],
        first["error"]["code"],
    )
    assert ("succeeded", 1, job["output"]) == (
        second["state"],
        second["generation"],
        second["output"],
    )


async def test_whoever_waits_waits_for_the_job_and_not_for_its_completion(server):
    completion = {"capability": "test.wait", "input": {"failures": 0}}
    asked = {"capability": "demo.echo", "input": {}, "completion": completion}
    answer = await server.client.post(
        "/v1/jobs", json=asked, headers={"Prefer": "wait=30"}
    )
    [found] = (
        await server.client.get(
            "/v1/jobs", params={"tag": f"completion:{answer.json()['id']}"}
        )
    ).json()["items"]
    server.release.set()

    assert (200, "succeeded") == (answer.status_code, answer.json()["state"])
    assert found["state"] in {"queued", "running"}
    assert "succeeded" == (await server.ended(found))["state"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/flows", lambda job: {"steps": [{"name": "one", **job}]}),
        ("/v1/batches", lambda job: {"jobs": [job]}),
        ("/v1/batches", lambda job: {"flows": [{"steps": [{"name": "one", **job}]}]}),
    ],
    ids=["step", "member", "step of a member"],
)
async def test_steps_and_members_may_have_completions(server, path, body):
    job = {"capability": "demo.echo", "input": {}, "completion": ECHO}
    headers = {"Idempotency-Key": "once"}
    first = await server.client.post(path, json=body(job), headers=headers)
    again = await server.client.post(path, json=body(job), headers=headers)
    other = {**job, "completion": {"capability": "demo.echo"}}
    refused = await server.client.post(path, json=body(other), headers=headers)
    await server.ended(first.json())
    jobs = (await server.client.get("/v1/jobs?capability=demo.echo")).json()["items"]

    assert (202, 202, 422) == (
        first.status_code,
        again.status_code,
        refused.status_code,
    ), refused.text
    tagged = [job["tags"] for job in jobs if job["tags"]]
    plain = [job["id"] for job in jobs if not job["tags"]]
    assert [[f"completion:{job_id}"] for job_id in plain] == tagged


async def test_a_repeat_must_name_the_same_completion(server):
    asked = {"capability": "demo.echo", "input": {}, "completion": ECHO}
    headers = {"Idempotency-Key": "once"}
    first = await server.client.post("/v1/jobs", json=asked, headers=headers)
    again = await server.client.post("/v1/jobs", json=asked, headers=headers)
    other = {**asked, "completion": {"capability": "demo.echo"}}
    refused = await server.client.post("/v1/jobs", json=other, headers=headers)
    job = await server.ended(first.json())

    assert first.json()["id"] == again.json()["id"]
    assert (422, "IDEMPOTENCY_CONFLICT") == (
        refused.status_code,
        refused.json()["code"],
    )
    assert 1 == len(await completions(server, job))


@pytest.mark.parametrize(
    ("completion", "status", "path"),
    [
        ({"capability": "nope"}, 404, "completion.capability"),
        ({"capability": "webhook.deliver"}, 404, "completion.capability"),
        ({"capability": "ours.only"}, 404, "completion.capability"),
        ({"input": {}}, 422, "completion.capability"),
        ({**ECHO, "queue": "demo"}, 422, "completion.queue"),
        ({**ECHO, "completion": ECHO}, 422, "completion.completion"),
        ({**ECHO, "input": [1]}, 422, "completion.input"),
        ({**ECHO, "input": {"job": 1}}, 422, "completion.input.job"),
        ({**ECHO, "input": {"x": "y" * LARGE}}, 422, "completion.input"),
        (
            {"capability": "test.wait", "input": {"failures": "x"}},
            422,
            "completion.input.failures",
        ),
        ("demo.echo", 422, "completion"),
    ],
)
async def test_a_completion_that_cannot_be_is_refused(serve, completion, status, path):
    server = await serve(works=False, body_limit=2 * LARGE)
    server.backburner.registry.own(hidden)
    asked = {"capability": "demo.echo", "input": {}, "completion": completion}
    response = await server.client.post("/v1/jobs", json=asked)
    jobs = (await server.client.get("/v1/jobs")).json()["items"]

    assert status == response.status_code, response.text
    assert [path] == [error["path"] for error in response.json()["errors"]]
    assert [] == jobs


async def test_a_completion_is_seen_by_its_jobs_owner_only(serve):
    server = await serve(keyed=True)
    ann, bob = [server.shown(await server.key(tenant)) for tenant in ("acme", "other")]
    asked = {"capability": "demo.echo", "input": {}, "completion": ECHO}
    job = (await server.client.post("/v1/jobs", json=asked, headers=ann)).json()
    wait = {"Prefer": "wait=30"}
    await server.client.get(f"/v1/jobs/{job['id']}", headers=ann | wait)
    tagged = {"tag": f"completion:{job['id']}"}
    mine = await server.client.get("/v1/jobs", params=tagged, headers=ann)
    theirs = await server.client.get("/v1/jobs", params=tagged, headers=bob)

    [found] = mine.json()["items"]
    looked = await server.client.get(f"/v1/jobs/{found['id']}", headers=bob)
    assert ([], 404) == (theirs.json()["items"], looked.status_code)
