"""
Webhooks end to end: a job over HTTP, its end told to receivers on real sockets.

They fail, hang, redirect, drip, cut, tire and leave; what comes of each is read from
the delivery, which is a job like any other.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from backburner import Context, PermanentError, capability
from backburner.client import WebhookError, verify_webhook
from backburner.domain.webhooks.delivery import CAPABILITY, QUEUE
from backburner.engine.webhooks.messages import LARGEST_OUTPUT, DeliveryInput, Messages
from tests.egress.receiver import Receiver, answers, cuts, drips, hangs

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
WEBHOOKS = {
    "webhook_secret": "what only the tests' receivers know of",
    "webhook_allow": ("127.0.0.1",),
    "webhook_connect_seconds": 2.0,
    "webhook_seconds": 3.0,
}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DRIP = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
OK = answers(204)
PAUSED = f"/v1/queues/{QUEUE}"


def in_turn(*turns):
    """Behave in one way after the other; the last stays."""
    left = [*turns]

    async def behave(writer):
        await (left.pop(0) if len(left) > 1 else left[0])(writer)

    return behave


@dataclass
class Runs:
    """A capability that counts, and fails while it is told to."""

    count: int = 0
    fails: bool = False
    says: str = "done"
    capability: object = field(init=False)

    def __post_init__(self):
        @capability("test.run", queue="demo")
        async def run(_ctx: Context, value: dict[str, str]) -> str:
            del value
            self.count += 1
            if self.fails:
                raise PermanentError("as it was told", code="TOLD")
            return self.says

        self.capability = run


@pytest.fixture
def runs():
    return Runs()


@pytest.fixture
async def server(serve, runs):
    """A server with a worker that calls this machine, and repeats at once."""
    return await serve(webhooks=WEBHOOKS, capabilities=[runs.capability])


@pytest.fixture
async def receiving():
    """Open receivers, all closed at the end."""
    async with AsyncExitStack() as stack:

        async def start(*turns):
            return await stack.enter_async_context(Receiver(in_turn(*turns)))

        yield start


async def submitted(server, receiver, name="test.run"):
    asked = {"capability": name, "input": {}, "callback": {"url": receiver.url()}}
    headers = {"X-Request-ID": f"asked-{receiver.port}", "traceparent": TRACE}
    answer = await server.client.post("/v1/jobs", json=asked, headers=headers)
    assert 202 == answer.status_code, answer.text
    return answer.json()


async def deliveries(server, subject):
    """Return what tells of a job, flow or batch that has ended, newest first."""
    kind = {"job": "jobs", "flow": "flows", "batch": "batches"}
    path = f"/v1/{kind[subject['id'].partition('_')[0]]}/{subject['id']}/deliveries"
    return (await server.client.get(path)).json()["items"]


async def told(server, job):
    """Wait for a job's end and for the end of the one delivery that tells of it."""
    await server.ended(job)
    (delivery,) = await deliveries(server, job)
    return await server.ended(delivery)


async def post(server, path, **body):
    answer = await server.client.post(path, **({"json": body} if body else {}))
    assert answer.is_success, answer.text
    return answer.json()


def codes(delivery):
    """Return what each attempt came to."""
    return [a["error"] and a["error"]["code"] for a in delivery["attempts"]]


@BOTH
async def test_every_end_is_told_whatever_receivers_do(server, receiving, runs):
    inside = await receiving(OK)
    wait = answers(429, Retry_After="1")
    town = {
        "good": await receiving(OK),
        "fails": await receiving(answers(500), answers(500), OK),
        "hangs": await receiving(hangs, OK),
        "drips": await receiving(drips(DRIP), OK),
        "cuts": await receiving(cuts, OK),
        "redirects": await receiving(answers(307, Location=inside.url())),
        "is tired": await receiving(wait, OK),
        "has left": await receiving(answers(410)),
    }
    bad = {
        name: await submitted(server, receiver)
        for name, receiver in town.items()
        if name != "good"
    }
    await asyncio.gather(*(town[name].called.wait() for name in bad))

    good = await told(server, await submitted(server, town["good"]))
    (hanging,) = await deliveries(server, bad["hangs"])

    assert ("succeeded", [None]) == (good["state"], codes(good))
    assert hanging["state"] != "succeeded", "it was told while others were waited for"

    ended = dict(
        zip(
            bad,
            await asyncio.gather(*(told(server, job) for job in bad.values())),
            strict=True,
        )
    )
    history = {
        name: [c for c in codes(d) if c != "SNOOZED"] for name, d in ended.items()
    }
    assert {
        "fails": ["WEBHOOK_STATUS", "WEBHOOK_STATUS", None],
        "hangs": ["WEBHOOK_TIMEOUT", None],
        "drips": ["WEBHOOK_TIMEOUT", None],
        "cuts": ["WEBHOOK_CUT", None],
        "redirects": ["WEBHOOK_REDIRECT"] * 10,
        "is tired": ["WEBHOOK_STATUS", None],
        "has left": ["WEBHOOK_GONE"],
    } == history
    dead = {name for name, d in ended.items() if d["state"] != "succeeded"}
    assert {"redirects", "has left"} == dead
    assert 0 == inside.connections, "redirects are not followed"
    assert 5 <= ended["is tired"]["attempts"][0]["error"]["retry_after"]
    assert 1 == ended["is tired"]["attempt"], "a wait that is asked for costs nothing"

    for name, delivery in {**ended, "good": good}.items():
        await check_requests(server, town[name], delivery)
    left = await post(server, "/v1/endpoints", url=town["has left"].url())
    assert "the receiver answered 410" == left["disabled_reason"]
    assert len(town) == runs.count, "a job runs once, however often it is told of"


async def check_requests(server, receiver, delivery):
    """Look at each request as its receiver would."""
    endpoint = await post(server, "/v1/endpoints", url=receiver.url())
    stranger = await post(server, "/v1/endpoints", url=receiver.url() + "&other=1")
    for request in receiver.requests:
        event = verify_webhook(request.body, request.headers, endpoint["secrets"])
        with pytest.raises(WebhookError):
            verify_webhook(request.body, request.headers, stranger["secrets"])
        assert ("job.succeeded", "done") == (event["type"], event["data"]["output"])
        assert (delivery["id"], f"asked-{receiver.port}", TRACE) == (
            request.headers["webhook-id"],
            request.headers["x-request-id"],
            request.headers["traceparent"],
        )
    assert 1 == len({request.body for request in receiver.requests})
    calls = [code for code in codes(delivery) if code != "SNOOZED"]
    assert len(calls) == len(receiver.requests), "nothing is sent after it was taken"


@BOTH
async def test_a_dead_delivery_is_sent_again_and_its_job_is_not_run(
    server, receiving, runs
):
    receiver = await receiving(*[answers(500)] * 10, OK)
    job = await submitted(server, receiver)
    dead = await told(server, job)

    path = f"/v1/deliveries/{dead['id']}/replay"
    retried = await server.ended(await post(server, path))
    repeated = await server.ended(await post(server, path))

    assert ("failed", 10) == (dead["state"], dead["attempt"])
    assert (dead["id"], "succeeded", 1) == (
        retried["id"],
        retried["state"],
        retried["generation"],
    )
    assert ("succeeded", True) == (repeated["state"], repeated["id"] != dead["id"])
    assert {dead["id"]} == {r.headers["webhook-id"] for r in receiver.requests}
    assert 12 == len(receiver.requests)
    assert 1 == runs.count


@BOTH
async def test_a_disabled_endpoint_gets_nothing_until_it_is_enabled(server, receiving):
    receiver = await receiving(OK)
    endpoint = await post(server, "/v1/endpoints", url=receiver.url())
    here = f"/v1/endpoints/{endpoint['id']}"
    off = await post(server, f"{here}/disable")

    dead = await told(server, await submitted(server, receiver))
    assert ("disabled on request", ["WEBHOOK_DISABLED"]) == (
        off["disabled_reason"],
        codes(dead),
    )
    assert ("failed", 0) == (dead["state"], receiver.connections)

    on = await post(server, f"{here}/enable")
    sent = await server.ended(await post(server, f"/v1/deliveries/{dead['id']}/replay"))
    assert (None, "succeeded", 1) == (
        on["disabled_at"],
        sent["state"],
        len(receiver.requests),
    )


@BOTH
async def test_an_end_is_told_as_it_was_when_the_job_is_retried_meanwhile(
    server, receiving, runs
):
    receiver = await receiving(OK)
    await post(server, f"{PAUSED}/pause")
    runs.fails = True
    job = await submitted(server, receiver)
    await server.ended(job)
    (first,) = await deliveries(server, job)
    messages, owner = (
        Messages(server.backburner.engine.store),
        await owner_of(server, job),
    )
    asked = DeliveryInput(
        **(await server.client.get(first["links"]["self"])).json()["input"]
    )
    from_row = await messages.body(asked, owner)

    runs.fails = False
    await server.ended(await post(server, f"/v1/jobs/{job['id']}/retry"))
    from_events = await messages.body(asked, owner)
    await post(server, f"{PAUSED}/resume")
    ended = [await server.ended(d) for d in await deliveries(server, job)]

    assert from_row == from_events
    assert ["succeeded", "succeeded"] == [d["state"] for d in ended]
    events = await events_of(server, receiver)
    assert {
        ("job.failed", 0, "TOLD"),
        ("job.succeeded", 1, None),
    } == {
        (e["type"], e["data"]["generation"], (e["data"]["error"] or {}).get("code"))
        for e in events
    }


async def owner_of(server, job):
    return (await server.backburner.engine.store.find([job["id"]]))[0].owner


async def events_of(server, receiver):
    endpoint = await post(server, "/v1/endpoints", url=receiver.url())
    return [
        verify_webhook(request.body, request.headers, endpoint["secrets"])
        for request in receiver.requests
    ]


@BOTH
async def test_flows_and_batches_tell_of_their_ends(server, receiving):
    receiver = await receiving(OK)
    callback = {"url": receiver.url()}
    work = {"capability": "test.run", "input": {}}
    flow = await post(
        server, "/v1/flows", steps=[{"name": "a", **work}], callback=callback
    )
    batch = await post(server, "/v1/batches", jobs=[work], callback=callback)

    for group, kind in ((flow, "flows"), (batch, "batches")):
        here = f"/v1/{kind}/{group['id']}"
        await server.client.get(here, headers={"Prefer": "wait=30"})
        (delivery,) = await deliveries(server, group)
        assert "succeeded" == (await server.ended(delivery))["state"]
    events = {e["type"]: e["data"] for e in await events_of(server, receiver)}

    assert {"flow.succeeded", "batch.finished"} == set(events)
    assert flow["id"] == events["flow.succeeded"]["id"]
    assert {"succeeded": 1} == events["batch.finished"]["counts"]["members"]


async def test_a_large_output_is_named_and_not_sent(server, receiving, runs):
    receiver = await receiving(OK)
    runs.says = "x" * LARGEST_OUTPUT
    job = await submitted(server, receiver)
    await told(server, job)

    (event,) = await events_of(server, receiver)
    assert "output" not in event["data"]
    result = await server.client.get(event["data"]["links"]["result"])
    assert runs.says == result.json()


async def test_a_delivery_whose_job_is_gone_is_a_dead_letter(server, receiving):
    receiver = await receiving(OK)
    await post(server, f"{PAUSED}/pause")
    job = await submitted(server, receiver)
    await server.ended(job)
    (delivery,) = await deliveries(server, job)

    def forget(tx):
        named = {"id": job["id"]}
        events = "DELETE FROM events WHERE job = (SELECT seq FROM jobs WHERE id = :id)"
        tx.connection.execute(sa.text(events), named)
        tx.connection.execute(sa.text("DELETE FROM jobs WHERE id = :id"), named)

    await server.backburner.transact(forget)
    await post(server, f"{PAUSED}/resume")

    dead = await server.ended(delivery)
    assert ("failed", ["WEBHOOK_SUBJECT_GONE"]) == (dead["state"], codes(dead))
    assert 0 == receiver.connections


async def test_an_endpoint_is_kept_by_its_owner(server, receiving):
    receiver = await receiving(OK)
    made = await post(server, "/v1/endpoints", url=receiver.url())
    again = await post(server, "/v1/endpoints", url=receiver.url())
    here = f"/v1/endpoints/{made['id']}"
    shown = (await server.client.get(here)).json()
    rotated = await post(server, f"{here}/rotate")
    listed = (await server.client.get("/v1/endpoints")).json()["items"]
    asked = {
        "capability": "test.run",
        "input": {},
        "callback": {"endpoint": made["id"]},
    }
    delivery = await told(server, await post(server, "/v1/jobs", **asked))
    for secret in rotated["secrets"]:
        (request,) = receiver.requests
        verify_webhook(request.body, request.headers, secret)
    deleted = await server.client.delete(here)
    orphan = await told(server, await post(server, "/v1/jobs", **asked))

    assert made == again
    assert made == {**shown, "secrets": made["secrets"]}
    assert "secrets" not in shown
    assert made["secrets"] == rotated["secrets"][1:], "the old one signs for a day"
    assert [made["id"]] == [endpoint["id"] for endpoint in listed]
    assert ("succeeded", 204) == (delivery["state"], deleted.status_code)
    assert ["WEBHOOK_DISABLED"] == codes(orphan)
    assert 404 == (await server.client.get(here)).status_code


async def test_what_is_no_delivery_or_not_over_is_not_replayed(server, receiving):
    receiver = await receiving(OK)
    await post(server, f"{PAUSED}/pause")
    job = await submitted(server, receiver)
    await server.ended(job)
    (waiting,) = await deliveries(server, job)

    refused = [
        await server.client.post(f"/v1/deliveries/{found['id']}/replay")
        for found in (job, waiting)
    ]
    assert [404, 409] == [answer.status_code for answer in refused]
    entries = await server.backburner.engine.store.audited(
        "default", before=None, limit=9
    )
    assert not {"delivery.replayed", "dead_letter.retried"} & {
        entry.action for entry in entries
    }


async def test_nobody_submits_a_delivery(server):
    asked = {"capability": CAPABILITY, "input": {}}
    elsewhere = {"capability": "demo.echo", "input": {}, "queue": QUEUE}
    refused = [
        (await server.client.post("/v1/jobs", json=body)).status_code
        for body in (asked, elsewhere)
    ]
    listed = (await server.client.get("/v1/capabilities")).json()["items"]

    assert [404, 422] == refused
    assert CAPABILITY not in {found["name"] for found in listed}


async def test_without_a_secret_callbacks_are_refused(serve):
    server = await serve()
    asked = {
        "capability": "demo.echo",
        "input": {},
        "callback": {"url": "https://hooks.example/"},
    }
    refused = await server.client.post("/v1/jobs", json=asked)
    unmade = await server.client.post(
        "/v1/endpoints", json={"url": "https://a.example"}
    )

    for answer in (refused, unmade):
        assert 422 == answer.status_code
        assert "BACKBURNER_WEBHOOK_SECRET" in answer.json()["errors"][0]["message"]
    del asked["callback"]
    assert 202 == (await server.client.post("/v1/jobs", json=asked)).status_code


HOSTILE_FORMS = [
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "http://user:secret@127.0.0.1/",
    "https://example.com\\@10.0.0.1/",
    "https://[::1%25lo]/",
    "https://example.com:22/",
    "not a URL",
]


@pytest.mark.parametrize("url", HOSTILE_FORMS)
async def test_a_callback_of_a_hostile_form_is_refused_at_submit(server, url):
    asked = {"capability": "demo.echo", "input": {}, "callback": {"url": url}}
    answer = await server.client.post("/v1/jobs", json=asked)

    assert 422 == answer.status_code
    assert ["callback.url"] == [e["path"] for e in answer.json()["errors"]]
    assert url not in answer.text


INSIDE = ["10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:10.0.0.1]", "localhost"]


@pytest.mark.parametrize("host", INSIDE)
async def test_a_callback_that_can_never_be_called_is_refused_at_submit(server, host):
    url = f"https://{host}/"
    asked = {"capability": "demo.echo", "input": {}, "callback": {"url": url}}
    job = await server.client.post("/v1/jobs", json=asked)
    endpoint = await server.client.post("/v1/endpoints", json={"url": url})

    assert [422, 422] == [job.status_code, endpoint.status_code]
    for answer in (job, endpoint):
        assert "BACKBURNER_WEBHOOK_ALLOW" in answer.json()["errors"][0]["message"]


async def test_what_may_not_be_reached_is_told_apart_by_nothing(server):
    # Names for addresses inside: what they stand for is seen at connect only.
    hosts = ["167772161", "0xa9fea9fe", "127.1", "0177.0.0.2", "nowhere.invalid"]
    jobs = [
        await post(
            server,
            "/v1/jobs",
            capability="demo.echo",
            input={},
            callback={"url": f"https://{host}/"},
        )
        for host in hosts
    ]
    for job in jobs:
        await server.ended(job)
    listed = [(await deliveries(server, job))[0] for job in jobs]
    first = [await first_failure(server, delivery) for delivery in listed]

    assert {"WEBHOOK_REFUSED"} == {error["code"] for error in first}
    assert 1 == len({error["message"] for error in first})


async def first_failure(server, delivery):
    """Return what a delivery's first attempt came to."""
    job = (await server.backburner.engine.store.find([delivery["id"]]))[0]
    async with asyncio.timeout(60):
        async for event in server.backburner.engine.events(job):
            if event.type == "job.retrying":
                return event.data["error"]
    raise AssertionError("the delivery ended without a failure")
