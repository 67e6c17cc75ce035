"""Metadata over HTTP: kept and shown as it was sent, bounded, and searched for."""

import pytest

from backburner.domain.auth.access import DEFAULT_SCOPES
from backburner.domain.errors import InvalidInput
from backburner.http.routes import jobs
from tests.http.test_shares import WAYS_IN

ECHO = {"capability": "demo.echo", "input": {}}
GIVEN = {"order": "A-1042", "a note of theirs": "line 1\nline 2 \u202e 🎶", "none": ""}
ODD = {"it's": "a=b=c", 'a "b" \\': "ж, 🎶 & 100%", "path.$[0]": "\u202e\n"}
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


async def found(server, *pairs, **more):
    """Return the metadata of the jobs that a list with these pairs has."""
    query = {"metadata": pairs, **more}
    page = await server.client.get("/v1/jobs", params=query)
    counted = await server.client.get("/v1/jobs/count", params=query)
    assert 200 == page.status_code == counted.status_code, page.text
    listed = [job["metadata"] for job in page.json()["items"]]
    assert {"count": len(listed), "capped": False} == counted.json()
    return listed


async def test_jobs_are_found_by_it(serve):
    server = await serve(works=False)
    both = {**GIVEN, **ODD}
    for metadata in (GIVEN, both, {"order": "A-1042 "}, {"order ": "A-1042"}, {}):
        await sent(server, metadata)
    await sent(server, LARGEST)

    assert [both, GIVEN] == await found(server, "order=A-1042")
    assert [both, GIVEN] == await found(server, "none=")
    for name, text in both.items():
        assert both in await found(server, f"{name}={text}")
    assert [both] == await found(server, *[f"{n}={t}" for n, t in both.items()])
    assert [LARGEST] == await found(server, *[f"{n:064}={'ж' * 512}" for n in (0, 15)])
    assert [] == await found(server, "order=A-1042", "none=A-1042")
    assert [] == await found(server, "order=A-1042", capability="demo.fail")


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (["order"], "must be NAME=TEXT, such as order=A-1042"),
        ([""], "must be NAME=TEXT, such as order=A-1042"),
        (["order=1", "none"], "must be NAME=TEXT, such as order=A-1042"),
        (["=A-1042"], "keys have 1 to 64 printable characters"),
        ([f"{'x' * 65}=1"], "keys have 1 to 64 printable characters"),
        (["two\nlines=1"], "keys have 1 to 64 printable characters"),
        ([f"order={'x' * 513}"], "must be a text of at most 512 characters"),
        (["order=1", "order=2"], "must not contain a name twice"),
        ([f"{n}=1" for n in range(17)], "at most 16 keys"),
        ([":=,"], ":=, cannot be searched for"),
    ],
    ids=lambda one: str(one)[:20],
)
async def test_a_search_for_what_no_job_has_is_refused(server, pairs, told):
    listed = await server.client.get("/v1/jobs", params={"metadata": pairs})
    counted = await server.client.get("/v1/jobs/count", params={"metadata": pairs})
    body = {"action": "cancel", "where": {"metadata": pairs}}
    changed = await server.client.post("/v1/jobs/bulk", json=body)

    for refused in (listed, counted, changed):
        [error] = refused.json()["errors"]
        assert (422, told) == (refused.status_code, error["message"])
        assert "metadata" in error["path"]


@pytest.mark.parametrize("pairs", [7, [7], {"order": "1"}, [None], [["order=1"]]])
async def test_pairs_that_are_no_texts_are_refused(server, pairs):
    body = {"action": "cancel", "where": {"metadata": pairs}}
    refused = await server.client.post("/v1/jobs/bulk", json=body)

    assert 422 == refused.status_code
    assert all("where.metadata" in error["path"] for error in refused.json()["errors"])


@pytest.mark.parametrize("pairs", ["order=A-1042", ["order=A-1042", "none="]])
async def test_a_bulk_action_changes_only_what_it_finds(server, pairs):
    later = {"run_at": "2100-01-01T00:00:00Z"}
    body = {**ECHO, **later, "metadata": GIVEN}
    meant = (await server.client.post("/v1/jobs", json=body)).json()
    body["metadata"] = {"order": "A-10421", "none": "A-1042"}
    other = (await server.client.post("/v1/jobs", json=body)).json()
    action = {"action": "cancel", "where": {"metadata": pairs}}
    job = (await server.client.post("/v1/jobs/bulk", json=action)).json()
    ended = await server.ended(job)
    states = [
        (await server.client.get(one["links"]["self"])).json()["state"]
        for one in (meant, other)
    ]

    assert (1, 0) == (ended["output"]["changed"], ended["output"]["skipped"])
    assert ["cancelled", "scheduled"] == states
    given = dict(pair.split("=") for pair in ([pairs] if pairs[0] == "o" else pairs))
    assert given == ended["input"]["where"]["metadata"]


async def test_a_search_reads_a_bounded_number_of_jobs(serve, monkeypatch):
    monkeypatch.setattr(jobs, "REACH", 3)
    server = await serve(works=False)
    for number in range(9):
        await sent(server, {"number": str(number)})
    query = {"metadata": "number=0"}
    first = (await server.client.get("/v1/jobs", params=query)).json()
    counted = (await server.client.get("/v1/jobs/count", params=query)).json()

    assert ([], False) == (first["items"], first["next_cursor"] is None)
    assert {"count": 0, "capped": True} == counted
    query["cursor"] = first["next_cursor"]
    for _ in range(2):
        page = (await server.client.get("/v1/jobs", params=query)).json()
        query["cursor"] = page["next_cursor"]
    assert [{"number": "0"}] == [job["metadata"] for job in page["items"]]


async def test_a_program_finds_its_own_jobs_by_it(server):
    await sent(server, GIVEN)
    await sent(server, {"order": "2"})
    bb = server.backburner

    [job] = await bb.jobs(metadata={"order": "A-1042", "none": ""})
    assert GIVEN == job.metadata
    assert 2 == len(await bb.jobs(metadata={}))
    with pytest.raises(InvalidInput, match="keys have 1 to 64"):
        await bb.jobs(metadata={"": "x"})
