"""Flows over HTTP."""

import asyncio

import orjson
import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.flow import Flow
from backburner.engine.submit.submission import GroupOptions
from backburner.http.schemas.groups import FlowPage, FlowView
from backburner.http.schemas.jobs import EventView

pytestmark = [
    pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True),
    pytest.mark.one_store,  # what stores have in common: tests/conformance
]

STRANGER = Owner("default", "2")
LATER = "2100-01-01T00:00:00Z"
CHAIN = [
    {"name": "second", "capability": "demo.echo", "needs": ["first"]},
    {"name": "first", "capability": "demo.echo", "input": {"a": 1}},
]
BROKEN = [
    {"name": "bad", "capability": "demo.fail", "input": {"error": "permanent"}},
    {"name": "next", "capability": "demo.echo", "needs": ["bad"]},
    {"name": "last", "capability": "demo.echo", "needs": ["next"]},
    {
        "name": "anyway",
        "capability": "demo.echo",
        "input": {},
        "needs": [{"step": "bad", "otherwise": "continue"}],
    },
]
HELD = [
    {"name": "held", "capability": "test.wait", "input": {}},
    {"name": "after", "capability": "demo.echo", "needs": ["held"]},
]


async def submitted(server, steps, headers=None, **more):
    """Submit a flow and return its receipt."""
    asked = {"steps": steps, **more}
    response = await server.client.post("/v1/flows", json=asked, headers=headers)
    assert 202 == response.status_code, response.text
    return response.json()


async def events_of(server, path, *, count=None, **options):
    """Return the events of a stream, all of them or the first so many."""
    told = []
    async with server.client.sse(path, **options) as source:
        async for event in source:
            if event.data:
                told.append(event)
            if len(told) == count:
                break
    return told


def states(flow):
    return {step["name"]: step["state"] for step in flow["steps"]}


async def job_of(server, flow, name):
    """Return the whole job of a step."""
    (job_id,) = (step["id"] for step in flow["steps"] if step["name"] == name)
    response = await server.client.get(f"/v1/jobs/{job_id}")
    return response.json()


async def test_a_flow_is_accepted_at_once_and_outputs_go_along_its_edges(server):
    response = await server.client.post("/v1/flows", json={"steps": CHAIN})
    receipt = response.json()
    flow = await server.ended(receipt)
    first = await job_of(server, flow, "first")
    second = await job_of(server, flow, "second")
    result = await server.client.get(second["links"]["result"])

    assert 202 == response.status_code
    assert f"/v1/flows/{receipt['id']}" == response.headers["Location"]
    assert {"first": "queued", "second": "blocked"} == states(receipt)
    assert [[], [{"step": "first", "otherwise": "cancel"}]] == [
        step["needs"] for step in receipt["steps"]
    ]
    assert ("succeeded", {"succeeded": 2}) == (flow["state"], flow["counts"])
    assert ["first", "second"] == [step["name"] for step in flow["steps"]]
    assert {"a": 1} == first["input"] == second["output"] == result.json()
    assert (None, "needs") == (second["input"], second["input_from"])
    assert (flow["id"], "second") == (second["flow_id"], second["step"])
    assert "input_from" not in first


async def test_receipt_and_flow_have_the_described_shape(server):
    receipt = await submitted(server, CHAIN)
    flow = await server.ended(receipt)
    page = (await server.client.get("/v1/flows")).json()

    assert receipt.keys() == FlowView.model_validate(receipt).model_fields_set
    assert receipt.keys() == flow.keys()
    assert flow == orjson.loads(FlowView.model_validate(flow).model_dump_json()) | {
        name: flow[name] for name in ("created_at", "finished_at", "steps")
    }
    assert flow.keys() - page["items"][0].keys() == {"steps", "counts"}
    assert FlowPage.model_validate(page)


async def test_a_caller_that_waits_gets_the_finished_flow(server):
    response = await server.client.post(
        "/v1/flows", json={"steps": CHAIN}, headers={"Prefer": "wait=30"}
    )

    assert 200 == response.status_code
    assert "wait=30" == response.headers["Preference-Applied"]
    assert "succeeded" == response.json()["state"]


async def test_a_wait_that_is_too_short_ends_with_the_receipt(server):
    response = await server.client.post(
        "/v1/flows", json={"steps": HELD}, headers={"Prefer": "wait=0"}
    )

    assert (202, "running") == (response.status_code, response.json()["state"])


async def test_what_fails_takes_along_who_needs_it_but_not_who_goes_on(server):
    flow = await server.ended(await submitted(server, BROKEN))
    given_up = await job_of(server, flow, "last")

    assert "failed" == flow["state"]
    assert {
        "bad": "failed",
        "next": "cancelled",
        "last": "cancelled",
        "anyway": "succeeded",
    } == states(flow)
    assert "DEPENDENCY_FAILED" == given_up["error"]["code"]


async def test_a_failure_that_all_others_expect_fails_nothing(server):
    flow = await server.ended(await submitted(server, [BROKEN[0], BROKEN[3]]))

    assert ("succeeded", "failed") == (flow["state"], states(flow)["bad"])


async def test_a_retry_goes_on_from_where_it_failed(server):
    flow = await server.ended(await submitted(server, BROKEN))
    response = await server.client.post(flow["links"]["retry"])
    again = await server.ended(flow)
    once_more = await server.client.post(flow["links"]["retry"])

    assert 202 == response.status_code
    assert flow["links"]["self"] == response.headers["Location"]
    assert (0, 1) == (flow["generation"], again["generation"])
    assert ("succeeded", {"succeeded": 4}) == (again["state"], again["counts"])
    assert {"anyway": 1, "bad": 1} == {
        step["name"]: step["attempt"]
        for step in again["steps"]
        if step["name"] in {"anyway", "bad"}
    }
    assert (409, "ILLEGAL_TRANSITION") == (
        once_more.status_code,
        once_more.json()["code"],
    )


async def test_a_retry_of_the_failed_job_opens_its_flow_again(server):
    flow = await server.ended(await submitted(server, BROKEN))
    job = await job_of(server, flow, "bad")
    await server.client.post(f"/v1/dead-letters/{job['id']}/retry")
    again = await server.ended(flow)

    assert ("succeeded", 1) == (again["state"], again["generation"])


async def test_a_dead_letter_that_was_fed_by_others_is_shown(server):
    steps = [
        {
            "name": "says how",
            "capability": "demo.echo",
            "input": {"times": 1, "error": "permanent"},
        },
        {"name": "fails so", "capability": "demo.fail", "needs": ["says how"]},
    ]
    flow = await server.ended(await submitted(server, steps))
    failed = flow["steps"][1]["id"]
    shown = await server.client.get(f"/v1/dead-letters/{failed}")
    result = await server.client.get(f"/v1/jobs/{failed}/result")

    assert "failed" == flow["state"]
    assert (None, "needs") == (shown.json()["input"], shown.json()["input_from"])
    assert (409, "PERMANENT") == (result.status_code, result.json()["error"]["code"])


async def test_a_flow_is_cancelled_as_a_whole_and_asking_twice_is_no_error(server):
    flow = await submitted(server, HELD)
    first = await server.client.post(flow["links"]["cancel"])
    second = await server.client.post(flow["links"]["cancel"])

    assert (200, 200) == (first.status_code, second.status_code)
    assert "cancelled" == first.json()["state"] == second.json()["state"]
    assert {"held": "cancelled", "after": "cancelled"} == states(first.json())


async def test_a_deadline_holds_for_the_whole(server):
    steps = [{**step, "run_at": LATER} for step in CHAIN]
    flow = await server.ended(
        await submitted(server, steps, deadline="2020-01-01T00:00:00Z")
    )
    first = await job_of(server, flow, "first")

    assert ("failed", "EXPIRED") == (flow["state"], first["error"]["code"])


async def test_one_key_is_one_flow_however_often_it_is_asked(server):
    def submit(steps):
        return server.client.post(
            "/v1/flows", json={"steps": steps}, headers={"Idempotency-Key": "key-1"}
        )

    answers = await asyncio.gather(*(submit(CHAIN) for _ in range(10)))
    await server.ended(answers[0].json())
    late = await submit(CHAIN)
    other = await submit(CHAIN[1:])
    listed = (await server.client.get("/v1/flows")).json()["items"]

    assert {202} == {answer.status_code for answer in (*answers, late)}
    assert 1 == sum("Idempotency-Replayed" not in a.headers for a in answers)
    assert {listed[0]["id"]} == {answer.json()["id"] for answer in (*answers, late)}
    assert 1 == len(listed)
    assert (422, "IDEMPOTENCY_CONFLICT") == (other.status_code, other.json()["code"])


async def test_a_flow_that_has_not_changed_is_not_sent_again(server):
    flow = await submitted(server, [{**step, "run_at": LATER} for step in CHAIN])
    first = await server.client.get(flow["links"]["self"])
    known = {"If-None-Match": first.headers["ETag"]}
    second = await server.client.get(flow["links"]["self"], headers=known)
    await server.client.post(f"/v1/jobs/{flow['steps'][0]['id']}/cancel")
    third = await server.client.get(flow["links"]["self"], headers=known)

    assert [200, 304, 200] == [a.status_code for a in (first, second, third)]
    assert "1" == first.headers["Retry-After"]
    assert "Retry-After" not in third.headers


async def test_a_flow_that_has_ended_cannot_be_cancelled_like_a_job(server):
    held, done = await submitted(server, HELD), await submitted(server, CHAIN)
    await server.ended(done)
    answers = [
        await server.client.post(f"/v1/flows/{flow['id']}/cancel")
        for flow in (held, held, done)
    ]
    kept = (await server.client.get(done["links"]["self"])).json()

    assert [200, 200, 409] == [answer.status_code for answer in answers]
    assert ["cancelled"] * 2 == [answer.json()["state"] for answer in answers[:2]]
    assert "ILLEGAL_TRANSITION" == answers[2].json()["code"]
    assert "succeeded" == kept["state"]


async def test_flows_are_listed_by_state_and_tag_page_by_page(server):
    held = [await submitted(server, HELD, tags=["mine"]) for _ in range(3)]
    done = await server.ended(await submitted(server, CHAIN, tags=["other"]))
    first = await server.client.get("/v1/flows?tag=mine&limit=2")
    second = await server.client.get(first.links["next"]["url"])
    ended = await server.client.get("/v1/flows?state=succeeded")
    steps = await server.client.get(done["links"]["jobs"])
    pages = [first.json(), second.json()]

    assert [flow["id"] for flow in reversed(held)] == [
        flow["id"] for page in pages for flow in page["items"]
    ]
    assert "next" not in second.links
    assert [done["id"]] == [flow["id"] for flow in ended.json()["items"]]
    assert ["second", "first"] == [job["step"] for job in steps.json()["items"]]


async def test_a_reader_cut_and_resumed_sees_every_event_once_and_in_order(server):
    flow = await submitted(server, HELD)
    first = await events_of(server, flow["links"]["events"], count=3)
    headers = {"Last-Event-ID": first[-1].id}
    server.release.set()
    second = await events_of(server, flow["links"]["events"], headers=headers)
    whole = await events_of(server, flow["links"]["events"])
    seen = {"Last-Event-ID": second[-1].id}
    over = await server.client.get(flow["links"]["events"], headers=seen)
    told = [EventView.model_validate_json(event.data) for event in whole]

    assert [event.id for event in first + second] == [event.id for event in whole]
    assert ["flow.started", "flow.succeeded"] == [whole[0].event, whole[-1].event]
    assert [event.id for event in whole] == [str(event.seq) for event in told]
    assert {flow["id"]} == {event.flow_id for event in told if event.flow_id}
    assert {step["id"] for step in flow["steps"]} == {
        event.job_id for event in told if event.job_id
    }
    assert 204 == over.status_code


async def test_the_stream_of_everything_is_narrowed_to_a_flow_or_a_tag(server):
    await server.ended(await server.submit())
    flow = await server.ended(await submitted(server, CHAIN))
    tagged = await server.ended(await server.submit(tags=["red"]))
    about = {"after": 0, "flow": flow["id"]}
    of_flow = await events_of(server, "/v1/events", params=about, count=9)
    about = {"after": 0, "tag": "red"}
    of_tag = await events_of(server, "/v1/events", params=about, count=3)
    both = await server.client.get(f"/v1/events?tag=red&flow={flow['id']}")

    assert ["flow.started", "flow.succeeded"] == [of_flow[0].event, of_flow[-1].event]
    assert {tagged["id"]} == {orjson.loads(event.data)["job_id"] for event in of_tag}
    assert 422 == both.status_code


async def test_another_owners_flow_is_not_found(server):
    flow = Flow()
    flow.add("demo.echo", {})
    engine = server.backburner.engine
    ((found, *_),) = await engine.flows.submit([(flow, GroupOptions(owner=STRANGER))])
    here = f"/v1/flows/{found}"
    asked = [
        ("GET", here),
        ("GET", f"{here}/events"),
        ("POST", f"{here}/cancel"),
        ("POST", f"{here}/retry"),
        ("GET", f"/v1/jobs?flow={found}"),
        ("GET", f"/v1/events?flow={found}"),
    ]
    answers = [await server.client.request(*ask) for ask in asked]
    listed = (await server.client.get("/v1/flows")).json()["items"]

    assert {(404, "FLOW_NOT_FOUND")} == {
        (answer.status_code, answer.json()["code"]) for answer in answers
    }
    assert [] == listed


async def test_where_a_request_came_from_goes_along_with_what_it_makes(server):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"traceparent": trace, "X-Request-ID": "mine-1"}
    receipt = await submitted(server, CHAIN, headers)
    engine = server.backburner.engine
    flow = await engine.flows.find(receipt["id"])
    made = [flow, *(step.job for step in await engine.flows.steps(flow))]

    assert {(trace, "mine-1")} == {(m.traceparent, m.request_id) for m in made}
