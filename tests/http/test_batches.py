"""Batches over HTTP."""

import asyncio

import orjson
import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import GroupOptions
from backburner.http.schemas.groups import BatchPage, BatchView

pytestmark = [
    pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True),
    pytest.mark.one_store,  # what stores have in common: tests/conformance
]

STRANGER = Owner("default", "2")
ECHO = {"capability": "demo.echo", "input": {"a": 1}}
HELD = {"capability": "test.wait", "input": {}}
BAD = {"capability": "demo.fail", "input": {"error": "permanent"}}
CHAIN = {
    "steps": [
        {"name": "first", **ECHO},
        {"name": "second", "capability": "demo.echo", "needs": ["first"]},
    ]
}
BROKEN = {
    "steps": [
        {"name": "bad", **BAD},
        {"name": "next", "capability": "demo.echo", "needs": ["bad"]},
    ]
}


async def opened(server, headers=None, **asked):
    """Open a batch and return its receipt."""
    response = await server.client.post("/v1/batches", json=asked, headers=headers)
    assert 202 == response.status_code, response.text
    return response.json()


async def filled(server, batch, headers=None, **asked):
    """Add to a batch and return the answer."""
    path = f"{batch['links']['self']}/members"
    return await server.client.post(path, json=asked, headers=headers)


async def tagged(server, tag):
    """Return the jobs with a tag, whole and newest first."""
    found = (await server.client.get("/v1/jobs", params={"tag": tag})).json()["items"]
    return [await server.ended(job) for job in found]


async def test_a_batch_ends_when_all_of_it_has_and_is_followed_by_its_job(server):
    asked = {"jobs": [ECHO, BAD], "flows": [CHAIN]}
    receipt = await opened(server, **asked, completion={"capability": "demo.echo"})
    batch = await server.ended(receipt)
    (after,) = await tagged(server, f"batch:{batch['id']}")
    jobs = (await server.client.get(batch["links"]["jobs"])).json()["items"]
    flows = (await server.client.get(f"/v1/flows?batch={batch['id']}")).json()["items"]

    assert ("open", 0, True) == (receipt["state"], receipt["done"], receipt["sealed"])
    assert {
        "total": 3,
        "done": 0,
        "members": {"queued": 2, "running": 1},
        "jobs": {"queued": 3, "blocked": 1},
    } == receipt["counts"]
    assert ("finished", 3) == (batch["state"], batch["done"])
    assert {"succeeded": 2, "failed": 1} == batch["counts"]["members"]
    assert {"succeeded": 3, "failed": 1} == batch["counts"]["jobs"]
    assert {"id": batch["id"], "generation": 0, **batch["counts"]} == after["output"]
    assert set(receipt["added"]["jobs"]) <= {job["id"] for job in jobs}
    assert {batch["id"]} == {job["batch_id"] for job in jobs}
    assert receipt["added"]["flows"] == [flow["id"] for flow in flows]
    assert [batch["id"]] == [flow["batch_id"] for flow in flows]


async def test_receipt_batch_and_page_have_the_described_shape(server):
    receipt = await opened(server, jobs=[ECHO])
    batch = await server.ended(receipt)
    held = await opened(server, jobs=[HELD])
    page = (await server.client.get("/v1/batches")).json()

    assert receipt.keys() == BatchView.model_validate(receipt).model_fields_set
    assert receipt.keys() - batch.keys() == {"added"}
    assert batch == page["items"][1]
    assert (held["id"], None) == (page["items"][0]["id"], page["items"][0]["counts"])
    assert BatchPage.model_validate(page)


async def test_a_caller_that_waits_gets_the_finished_batch(server):
    response = await server.client.post(
        "/v1/batches", json={"jobs": [ECHO]}, headers={"Prefer": "wait=30"}
    )

    assert (200, "finished") == (response.status_code, response.json()["state"])
    assert 1 == len(response.json()["added"]["jobs"])


async def test_a_batch_is_filled_until_it_has_what_it_expects(server):
    batch = await opened(server, expected=3)
    first = await filled(server, batch, jobs=[ECHO])
    second = await filled(server, batch, jobs=[ECHO], flows=[CHAIN])
    ended = await server.ended(batch)
    late = await filled(server, batch, jobs=[ECHO])

    assert (202, 202) == (first.status_code, second.status_code)
    assert (False, True) == (first.json()["sealed"], second.json()["sealed"])
    assert [1, 1] == [len(second.json()["added"][kind]) for kind in ("jobs", "flows")]
    assert ("finished", 3) == (ended["state"], ended["done"])
    assert (409, "ILLEGAL_TRANSITION") == (late.status_code, late.json()["code"])


async def test_a_batch_takes_no_more_than_it_expects(server):
    batch = await opened(server, expected=2)
    refused = await filled(server, batch, jobs=[ECHO] * 3)
    now = (await server.client.get(batch["links"]["self"])).json()

    assert 409 == refused.status_code
    assert 0 == now["counts"]["total"]


async def test_a_batch_that_expects_no_number_waits_until_it_is_sealed(server):
    batch = await opened(server, jobs=[ECHO], sealed=False)
    open_ = await filled(server, batch, jobs=[ECHO])
    sealed = await filled(server, batch, seal=True)
    again = await filled(server, batch, seal=True)
    ended = await server.ended(batch)

    assert [False, True, True] == [a.json()["sealed"] for a in (open_, sealed, again)]
    assert ("finished", 2) == (ended["state"], ended["done"])


async def test_a_filling_whose_answer_was_lost_is_repeated_under_its_key(server):
    batch = await opened(server, expected=3)
    asked = {"jobs": [ECHO, ECHO], "flows": [CHAIN]}
    key = {"Idempotency-Key": "filling-1"}
    answers = await asyncio.gather(
        *(filled(server, batch, key, **asked) for _ in range(5))
    )
    other = await filled(server, batch, key, jobs=[BAD, ECHO], flows=[CHAIN])
    ended = await server.ended(batch)

    assert {202} == {answer.status_code for answer in answers}
    assert 1 == len({str(answer.json()["added"]) for answer in answers})
    assert 1 == sum("Idempotency-Replayed" not in a.headers for a in answers)
    assert (422, "IDEMPOTENCY_CONFLICT") == (other.status_code, other.json()["code"])
    assert 3 == ended["counts"]["total"]


async def test_one_key_is_one_batch_however_often_it_is_asked(server):
    def ask(**asked):
        return server.client.post(
            "/v1/batches", json=asked, headers={"Idempotency-Key": "key-1"}
        )

    answers = await asyncio.gather(*(ask(jobs=[ECHO, ECHO]) for _ in range(5)))
    other = await ask(jobs=[ECHO, {**ECHO, "priority": 1}])
    listed = (await server.client.get("/v1/batches")).json()["items"]
    jobs = (await server.client.get("/v1/jobs")).json()["items"]

    assert {202} == {answer.status_code for answer in answers}
    assert 1 == sum("Idempotency-Replayed" not in a.headers for a in answers)
    assert {listed[0]["id"]} == {answer.json()["id"] for answer in answers}
    assert (1, 2) == (len(listed), len(jobs))
    assert (422, "IDEMPOTENCY_CONFLICT") == (other.status_code, other.json()["code"])


async def test_what_failed_is_retried_and_the_batch_ends_once_more(server):
    completion = {"capability": "demo.echo"}
    asked = {"jobs": [ECHO, BAD], "flows": [BROKEN], "completion": completion}
    batch = await server.ended(await opened(server, **asked))
    retried = await server.client.post(batch["links"]["retry"])
    again = await server.ended(batch)
    nothing = await server.client.post(batch["links"]["retry"])
    told = await tagged(server, f"batch:{batch['id']}")

    assert {"succeeded": 1, "failed": 2} == batch["counts"]["members"]
    assert (202, 2) == (retried.status_code, retried.json()["retried"])
    assert (1, {"succeeded": 3}) == (again["generation"], again["counts"]["members"])
    assert (202, 0) == (nothing.status_code, nothing.json()["retried"])
    assert [1, 0] == [job["output"]["generation"] for job in told]


async def test_a_batch_is_cancelled_as_a_whole_and_takes_no_more(server):
    flow = {"steps": [{"name": "held", **HELD}]}
    batch = await opened(server, jobs=[HELD], flows=[flow], expected=9)
    cancelled = await server.client.post(batch["links"]["cancel"])
    late = await filled(server, batch, jobs=[ECHO])
    ended = await server.ended(batch)

    assert 200 == cancelled.status_code
    assert 409 == late.status_code
    assert ("finished", 2) == (ended["state"], ended["done"])
    assert {"cancelled": 2} == ended["counts"]["members"]


async def test_a_batch_that_has_not_changed_is_not_sent_again(server):
    batch = await opened(server, expected=2)
    first = await server.client.get(batch["links"]["self"])
    known = {"If-None-Match": first.headers["ETag"]}
    second = await server.client.get(batch["links"]["self"], headers=known)
    await filled(server, batch, jobs=[HELD])
    third = await server.client.get(batch["links"]["self"], headers=known)

    assert [200, 304, 200] == [a.status_code for a in (first, second, third)]
    assert "1" == third.headers["Retry-After"]


async def test_batches_are_listed_by_state_and_tag_page_by_page(server):
    held = [await opened(server, jobs=[HELD], tags=["mine"]) for _ in range(3)]
    done = await server.ended(await opened(server, jobs=[ECHO]))
    first = await server.client.get("/v1/batches?tag=mine&limit=2")
    second = await server.client.get(first.links["next"]["url"])
    finished = await server.client.get("/v1/batches?state=finished")
    pages = [first.json(), second.json()]

    assert [batch["id"] for batch in reversed(held)] == [
        batch["id"] for page in pages for batch in page["items"]
    ]
    assert [done["id"]] == [batch["id"] for batch in finished.json()["items"]]


async def test_a_batch_tells_of_itself_and_a_reader_is_told_to_stay_away(server):
    batch = await server.ended(await opened(server, jobs=[ECHO, BAD], flows=[CHAIN]))
    told = []
    async with server.client.sse(batch["links"]["events"]) as source:
        told = [event async for event in source if event.data]
    seen = {"Last-Event-ID": told[-1].id}
    over = await server.client.get(batch["links"]["events"], headers=seen)
    last = orjson.loads(told[-1].data)

    assert {"batch.opened", "batch.progress", "batch.finished"} >= {
        event.event for event in told
    }
    assert (batch["id"], batch["counts"]) == (last["batch_id"], last["data"])
    assert 204 == over.status_code


async def test_a_batch_with_nothing_in_it_is_finished_at_once(server):
    batch = await server.ended(await opened(server))

    assert ("finished", 0) == (batch["state"], batch["counts"]["total"])


async def test_another_owners_batch_is_not_found(server):
    engine = server.backburner.engine
    options = GroupOptions(owner=STRANGER)
    found = (await engine.batches.open(options, engine.batches.members())).id
    here = f"/v1/batches/{found}"
    asked = [
        ("GET", here, None),
        ("GET", f"{here}/events", None),
        ("POST", f"{here}/members", {"jobs": [ECHO]}),
        ("POST", f"{here}/cancel", None),
        ("POST", f"{here}/retry", None),
        ("GET", f"/v1/jobs?batch={found}", None),
        ("GET", f"/v1/flows?batch={found}", None),
        ("GET", f"/v1/events?batch={found}", None),
    ]
    answers = [
        await server.client.request(method, path, json=body)
        for method, path, body in asked
    ]

    assert {(404, "BATCH_NOT_FOUND")} == {
        (answer.status_code, answer.json()["code"]) for answer in answers
    }
