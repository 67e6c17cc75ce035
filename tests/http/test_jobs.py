"""Jobs over HTTP."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import LOCAL, Options
from backburner.http.schemas.jobs import JobPage, JobView
from backburner.testing.samples import a_new_job

pytestmark = [
    pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True),
    pytest.mark.one_store,  # what stores have in common: tests/conformance
]

TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()  # noqa: TID251 - a day off
STRANGER = Owner("default", "2")


async def test_a_submitted_job_is_answered_at_once_and_done_later(server):
    response = await server.client.post(
        "/v1/jobs",
        json={"capability": "demo.echo", "input": {"a": 1}, "tags": ["x"]},
        headers={"X-Request-ID": "mine-1"},
    )
    receipt = response.json()
    job = await server.ended(receipt)
    result = await server.client.get(receipt["links"]["result"])

    assert 202 == response.status_code
    assert f"/v1/jobs/{receipt['id']}" == response.headers["Location"]
    assert "queued" == receipt["state"]
    assert ["x"] == receipt["tags"]
    assert "mine-1" == receipt["request_id"] == response.headers["X-Request-ID"]
    assert "succeeded" == job["state"]
    assert {"a": 1} == job["input"] == job["output"] == result.json()
    assert ["succeeded"] == [attempt["outcome"] for attempt in job["attempts"]]


async def test_receipt_and_job_have_the_described_shape(server):
    receipt = await server.submit()
    job = await server.ended(receipt)

    assert receipt.keys() == JobView.model_validate(receipt).model_fields_set
    assert job.keys() == JobView.model_validate(job).model_fields_set
    more = {"input", "output", "attempts", "worker"}
    assert more == job.keys() - receipt.keys()


async def test_times_are_utc_with_milliseconds(server):
    receipt = await server.submit(run_at="2020-01-02T03:04:05.678901+01:00")

    assert "2020-01-02T02:04:05.678Z" == receipt["run_at"]


async def test_a_caller_that_waits_gets_the_finished_job(server):
    response = await server.client.post(
        "/v1/jobs",
        json={"capability": "demo.echo", "input": {"a": 1}},
        headers={"Prefer": "respond-async, wait=30"},
    )

    assert 200 == response.status_code
    assert "wait=30" == response.headers["Preference-Applied"]
    assert {"a": 1} == response.json()["output"]


async def test_a_wait_that_is_too_short_ends_with_the_job_as_it_is_then(
    server, monkeypatch
):
    engine = server.backburner.engine

    async def until_it_starts(job_id, owner, *, timeout):  # noqa: ASYNC109 - as its own
        del timeout
        async for event in engine.events(await engine.find(job_id, owner)):
            if event.type == "job.started":
                break
        return await engine.find(job_id, owner)

    monkeypatch.setattr(engine, "wait", until_it_starts)
    response = await server.client.post(
        "/v1/jobs",
        json={"capability": "test.wait", "input": {}},
        headers={"Prefer": "wait=0"},
    )

    assert 202 == response.status_code
    assert "wait=0" == response.headers["Preference-Applied"]
    assert "1" == response.headers["Retry-After"]
    job = response.json()
    assert ("running", 1) == (job["state"], job["attempt"])
    assert "input" not in job, "the caller has just sent it"


async def test_a_wait_is_cut_to_a_minute(server):
    job = await server.failed()
    response = await server.client.get(
        job["links"]["self"], headers={"Prefer": "wait=9999"}
    )

    assert "wait=60" == response.headers["Preference-Applied"]


async def test_a_wait_that_makes_no_sense_is_ignored(server):
    response = await server.client.post(
        "/v1/jobs",
        json={"capability": "demo.echo", "input": {}},
        headers={"Prefer": "wait=soon"},
    )

    assert 202 == response.status_code
    assert "Preference-Applied" not in response.headers


async def test_a_long_poll_ends_when_the_job_does(server):
    job = await server.submit("test.wait")
    polling = asyncio.create_task(server.ended(job))
    await server.until(lambda: server.app.state.server_state.streams.open == 1)
    server.release.set()

    assert "succeeded" == (await polling)["state"]
    assert 0 == server.app.state.server_state.streams.open


async def test_a_client_that_leaves_frees_its_long_poll(server):
    job = await server.submit("test.wait")
    polling = asyncio.create_task(server.ended(job))
    await server.until(lambda: server.app.state.server_state.streams.open == 1)
    polling.cancel()
    await server.until(lambda: server.app.state.server_state.streams.open == 0)

    assert {} == server.backburner.engine._watch._readers


async def test_a_server_full_of_streams_answers_without_waiting(server):
    server.app.state.server_state.streams.limit = 0
    response = await server.client.post(
        "/v1/jobs",
        json={"capability": "test.wait", "input": {}},
        headers={"Prefer": "wait=30"},
    )

    assert 202 == response.status_code
    assert "Preference-Applied" not in response.headers


async def test_fifty_submits_with_one_key_are_one_job_and_equal_answers(server):
    def submit():
        return server.client.post(
            "/v1/jobs",
            json={"capability": "demo.echo", "input": {"a": 1}},
            headers={"Idempotency-Key": "key-1"},
        )

    responses = await asyncio.gather(*(submit() for _ in range(50)))
    jobs = (await server.client.get("/v1/jobs")).json()["items"]

    assert {202} == {response.status_code for response in responses}
    assert 1 == len({response.content for response in responses})
    assert 1 == sum("Idempotency-Replayed" not in r.headers for r in responses)
    assert [responses[0].json()["id"]] == [job["id"] for job in jobs]


async def test_a_repeat_much_later_gets_the_same_receipt(server):
    asked = {"capability": "test.wait", "input": {"failures": 1}}
    headers = {"Idempotency-Key": '"quoted"'}
    first = await server.client.post("/v1/jobs", json=asked, headers=headers)
    server.release.set()
    await server.ended(first.json())
    headers = {"Idempotency-Key": "quoted"}
    second = await server.client.post("/v1/jobs", json=asked, headers=headers)

    assert first.content == second.content
    assert "true" == second.headers["Idempotency-Replayed"]


async def test_a_key_used_with_another_body_is_refused(server):
    headers = {"Idempotency-Key": "key-1"}
    asked = {"capability": "demo.echo", "input": {"a": 1}}
    await server.client.post("/v1/jobs", json=asked, headers=headers)
    asked = {"capability": "demo.echo", "input": {"a": 2}}
    response = await server.client.post("/v1/jobs", json=asked, headers=headers)

    assert 422 == response.status_code
    assert "IDEMPOTENCY_CONFLICT" == response.json()["code"]


async def test_a_job_that_goes_on_says_when_to_ask_again(server):
    running = await server.submit("test.wait")
    later = await server.submit(run_at=TOMORROW)
    soon = await server.client.get(running["links"]["self"])
    late = await server.client.get(later["links"]["self"])

    assert "1" == soon.headers["Retry-After"]
    assert "60" == late.headers["Retry-After"]
    assert "scheduled" == later["state"] == late.json()["state"]


async def test_a_job_that_has_not_changed_is_not_sent_again(server):
    job = await server.submit("test.wait", run_at=TOMORROW)
    first = await server.client.get(job["links"]["self"])
    known = {"If-None-Match": f'"other", W/{first.headers["ETag"]}'}
    second = await server.client.get(job["links"]["self"], headers=known)
    await server.client.post(job["links"]["cancel"])
    third = await server.client.get(job["links"]["self"], headers=known)

    assert (200, 304, 200) == (
        first.status_code,
        second.status_code,
        third.status_code,
    )
    assert b"" == second.content
    assert first.headers["ETag"] == second.headers["ETag"] != third.headers["ETag"]


async def test_a_result_that_is_not_there_yet_is_promised(server):
    job = await server.submit("test.wait")
    response = await server.client.get(job["links"]["result"])

    assert 202 == response.status_code
    assert "1" == response.headers["Retry-After"]
    assert job["id"] == response.json()["id"]


async def test_a_failed_job_has_no_result_but_a_reason(server):
    job = await server.failed()
    response = await server.client.get(job["links"]["result"])

    assert 409 == response.status_code
    assert "NO_RESULT" == response.json()["code"]
    assert job["error"] == response.json()["error"]
    assert "PERMANENT" == job["error"]["code"]


async def test_a_running_job_is_cancelled_and_stays_so(server):
    job = await server.submit("test.wait")
    first = await server.client.post(job["links"]["cancel"])
    second = await server.client.post(job["links"]["cancel"])
    result = await server.client.get(job["links"]["result"])

    assert (200, 200) == (first.status_code, second.status_code)
    assert "cancelled" == first.json()["state"] == second.json()["state"]
    assert 409 == result.status_code


async def test_a_job_that_ended_otherwise_cannot_be_cancelled(server):
    job = await server.ended(await server.submit())
    response = await server.client.post(job["links"]["cancel"])

    assert 409 == response.status_code
    assert "ILLEGAL_TRANSITION" == response.json()["code"]


async def test_a_failed_job_can_be_retried_and_only_such_a_one(server):
    job = await server.failed()
    first = await server.client.post(f"{job['links']['self']}/retry")
    again = await server.ended(job)
    second = await server.client.post(f"{job['links']['self']}/retry")

    assert 202 == first.status_code
    assert job["links"]["self"] == first.headers["Location"]
    assert (0, 1) == (job["generation"], first.json()["generation"])
    assert "succeeded" == again["state"]
    assert 409 == second.status_code


async def test_jobs_are_listed_newest_first_page_by_page(serve):
    server = await serve(works=False)
    jobs = [await server.submit(tags=["mine"]) for _ in range(5)]
    first = await server.client.get("/v1/jobs?limit=2&tag=mine")
    second = await server.client.get(first.links["next"]["url"])
    third = await server.client.get(second.links["next"]["url"])
    pages = [first.json(), second.json(), third.json()]

    assert [job["id"] for job in reversed(jobs)] == [
        job["id"] for page in pages for job in page["items"]
    ]
    assert "next" not in third.links
    assert pages[2]["next_cursor"] is None
    assert JobPage.model_validate(pages[0]).next_cursor == pages[0]["next_cursor"]
    assert "input" not in pages[0]["items"][0]


async def test_jobs_are_filtered_by_what_they_are(server):
    echo = await server.ended(await server.submit(tags=["red", "blue"]))
    other = await server.submit("test.wait", run_at=TOMORROW, tags=["green"])

    async def listed(**query):
        response = await server.client.get("/v1/jobs", params=query)
        return [job["id"] for job in response.json()["items"]]

    assert [echo["id"]] == await listed(state="succeeded")
    assert [other["id"]] == await listed(capability="test.wait")
    assert [echo["id"]] == await listed(tag="blue")
    assert [other["id"], echo["id"]] == await listed(queue="demo")
    assert [] == await listed(queue="other")
    assert [other["id"], echo["id"]] == await listed(since=echo["created_at"])
    assert [] == await listed(since=TOMORROW)


async def test_another_owners_job_is_not_found(server):
    new = server.backburner.engine.prepare("demo.echo", {}, Options(owner=STRANGER))
    await server.backburner.engine.store_jobs([new])
    here = f"/v1/jobs/{new.id}"
    asked = [
        ("GET", here),
        ("GET", f"{here}/result"),
        ("GET", f"{here}/events"),
        ("POST", f"{here}/cancel"),
        ("POST", f"{here}/retry"),
        ("GET", f"/v1/dead-letters/{new.id}"),
        ("POST", f"/v1/dead-letters/{new.id}/retry"),
    ]
    statuses = [(await server.client.request(*ask)).status_code for ask in asked]
    listed = (await server.client.get("/v1/jobs")).json()["items"]

    assert [404] * len(asked) == statuses
    assert [] == listed


async def test_one_key_of_two_owners_is_two_jobs(server):
    options = Options(owner=STRANGER, idempotency_key="key-1")
    new = server.backburner.engine.prepare("demo.echo", {"a": 1}, options)
    await server.backburner.engine.store_jobs([new])
    response = await server.client.post(
        "/v1/jobs",
        json={"capability": "demo.echo", "input": {"a": 1}},
        headers={"Idempotency-Key": "key-1"},
    )

    assert new.id != response.json()["id"]
    assert "Idempotency-Replayed" not in response.headers


async def test_head_answers_as_get_without_a_body(server):
    job = await server.ended(await server.submit(value={"a": 1}))
    paths = ["/", "/livez", "/v1/jobs", job["links"]["self"], "/v1/jobs/none"]
    gets = [await server.client.get(path) for path in paths]
    heads = [await server.client.head(path) for path in paths]
    same = ("content-type", "content-length", "etag")

    assert [200, 200, 200, 200, 404] == [head.status_code for head in heads]
    assert [b""] * len(paths) == [head.content for head in heads]
    for get, head in zip(gets[:4], heads[:4], strict=True):
        assert [get.headers.get(name) for name in same] == [
            head.headers.get(name) for name in same
        ]


async def test_head_of_a_stream_ends_at_once(server):
    head = await server.client.head("/v1/events")
    await server.until(lambda: server.app.state.server_state.streams.open == 0)

    assert (200, b"") == (head.status_code, head.content)
    assert head.headers["content-type"].startswith("text/event-stream")


async def test_head_of_what_cannot_be_read_is_a_405_that_allows_post(server):
    head = await server.client.head("/v1/quote")
    put = await server.client.put("/v1/jobs")

    assert (405, "POST") == (head.status_code, head.headers["Allow"])
    assert "GET, HEAD, POST" == put.headers["Allow"]
    assert '"method": "HEAD"' in server.log.getvalue()


async def test_a_stored_time_beyond_the_year_9999_breaks_no_list(server):
    far = a_new_job(owner=LOCAL, run_at=253_402_300_800_000)
    await server.backburner.engine.store_jobs([far])

    listed = await server.client.get("/v1/jobs")
    shown = await server.client.get(f"/v1/jobs/{far.id}")

    assert [far.id] == [job["id"] for job in listed.json()["items"]]
    assert "9999-12-31T23:59:59.999Z" == shown.json()["run_at"]


NO_STATES = [
    ["x' OR '1'='1"],
    ["failed"],
    ["failed", "queued"],
    {"x' OR '1'='1": 1},
    {"failed": 1},
    "x' OR '1'='1",
    "failed,x' OR '1'='1",
    "",
    [],
    [None],
    0,
    True,
]


async def test_a_bulk_action_takes_a_state_only_as_text_that_names_states(server):
    await server.submit()
    refusals = []
    for state in NO_STATES:
        for action in ("retry", "cancel"):
            asked = {"action": action, "where": {"state": state}}
            answer = await server.client.post("/v1/jobs/bulk", json=asked)
            paths = [error["path"] for error in answer.json().get("errors", ())]
            refusals.append((answer.status_code, paths))

    assert [(422, ["where.state"])] * 2 * len(NO_STATES) == refusals
