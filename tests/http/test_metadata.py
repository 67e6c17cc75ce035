"""Metadata over HTTP: kept and shown with a job as it was sent, and bounded."""

import pytest

from backburner.domain.auth.access import DEFAULT_SCOPES
from tests.http.test_shares import WAYS_IN

ECHO = {"capability": "demo.echo", "input": {}}
GIVEN = {"order": "A-1042", "a note of theirs": "line 1\nline 2 \u202e 🎶", "none": ""}
LARGEST = {f"{n:064}": "ж" * 512 for n in range(16)}


async def sent(server, metadata, **more):
    body = {**ECHO, "metadata": metadata}
    return await server.client.post("/v1/jobs", json=body, **more)


@WAYS_IN
async def test_it_is_shown_wherever_the_job_is(server, path, body):
    made = await server.client.post(path, json=body({**ECHO, "metadata": GIVEN}))
    assert made.is_success, made.text
    plain = (await server.client.post("/v1/jobs", json=ECHO)).json()
    page = (await server.client.get("/v1/jobs")).json()["items"]
    listed = next(job for job in page if job["metadata"])
    whole = (await server.client.get(listed["links"]["self"])).json()

    assert (GIVEN, GIVEN, {}) == (
        listed["metadata"],
        whole["metadata"],
        plain["metadata"],
    )


async def test_the_largest_fits(server):
    job = await sent(server, LARGEST)

    assert (202, LARGEST) == (job.status_code, job.json()["metadata"])


@WAYS_IN
@pytest.mark.parametrize(
    "metadata",
    [
        {**LARGEST, "one more": ""},
        {"x" * 65: ""},
        {"": "no name"},
        {"two\nlines": ""},
        {"order": "x" * 513},
        {"order": 7},
        {"order": None},
        {"order": {"number": "7"}},
        ["order"],
        "order",
    ],
    ids=str,
)
async def test_what_cannot_be_kept_is_refused(server, path, body, metadata):
    refused = await server.client.post(path, json=body({**ECHO, "metadata": metadata}))

    assert 422 == refused.status_code
    assert all("metadata" in error["path"] for error in refused.json()["errors"])


async def test_a_repeat_with_other_metadata_is_another_request(server):
    key = {"Idempotency-Key": "k-1"}
    first = await sent(server, {"order": "1", "by": "ann"}, headers=key)
    again = await sent(server, {"by": "ann", "order": "1"}, headers=key)
    other = await sent(server, {"order": "2"}, headers=key)

    assert first.content == again.content
    assert "IDEMPOTENCY_CONFLICT" == other.json()["code"]


async def test_a_retry_keeps_it(server):
    failing = {"capability": "demo.fail", "input": {"error": "permanent"}}
    job = (
        await server.client.post("/v1/jobs", json={**failing, "metadata": GIVEN})
    ).json()
    await server.ended(job)
    retried = await server.client.post(f"{job['links']['self']}/retry")

    assert GIVEN == retried.json()["metadata"]


async def test_another_user_does_not_see_it(serve):
    server = await serve(keyed=True)
    ann, bob = [
        server.shown(await server.key("acme", *DEFAULT_SCOPES, user=user))
        for user in ("ann", "bob")
    ]
    await sent(server, GIVEN, headers=ann)

    assert "A-1042" in (await server.client.get("/v1/jobs", headers=ann)).text
    assert "A-1042" not in (await server.client.get("/v1/jobs", headers=bob)).text
