"""Receivers that misbehave in every way: what comes of it, and for the others."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from backburner import Backburner, Context, Failed, Settings, Snooze, capability
from backburner.client import verify_webhook
from backburner.clock import SystemClock, SystemDice
from backburner.domain.webhooks import webhook
from backburner.domain.webhooks.webhook import Endpoint
from backburner.engine.webhooks.delivery import (
    SCHEDULE,
    Deliver,
    Delivered,
    WebhookMessage,
    WebhookSender,
    decide,
    is_gone,
)
from backburner.engine.webhooks.receiver_limits import ReceiverLimits
from backburner.testing.samples import ANN, NOON
from tests.egress.receiver import (
    answers,
    babbles,
    cuts,
    drips,
    hangs,
    pours,
    slams,
)

MASTER = b"m" * 32
SHORT = 0.2
SLOTS = 8
OK = b"HTTP/1.1 200 OK\r\n"
BODY = b'{"type":"job.succeeded","timestamp":"2026-01-01T12:00:00Z","data":{}}'
PATIENCE = 180.0


def an_endpoint(receiver, **fields):
    return Endpoint(f"ep_{receiver.port}", ANN, receiver.url(), NOON, **fields)


@pytest.fixture
def delivering(egress):
    """Build deliveries over real sockets."""

    def build(**options):
        clock, dice = SystemClock(), SystemDice()
        sender = WebhookSender(egress(**options), MASTER, clock)
        return Deliver(sender, ReceiverLimits(clock, dice, slots=100), clock, dice)

    return build


@pytest.mark.parametrize(
    ("behave", "code"),
    [
        pytest.param(answers(500), "WEBHOOK_STATUS", id="500"),
        pytest.param(answers(503, body=b"x" * 9_999), "WEBHOOK_STATUS", id="503"),
        pytest.param(answers(404), "WEBHOOK_STATUS", id="404"),
        pytest.param(slams, "WEBHOOK_CUT", id="closes without a word"),
        pytest.param(cuts, "WEBHOOK_CUT", id="closes mid-answer"),
        pytest.param(babbles, "WEBHOOK_CUT", id="speaks no HTTP"),
    ],
)
async def test_a_receiver_that_fails_is_tried_again(
    delivering, receiving, behave, code
):
    receiver = await receiving(behave)

    failed = await delivering()(an_endpoint(receiver), WebhookMessage("job_1", BODY))

    assert (code, True, None) == (failed.code, failed.retryable, failed.retry_after)
    assert 1 == len(receiver.requests), "one attempt is one call"


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(hangs, id="hangs"),
        pytest.param(drips(OK + b"Content-Length: 9999\r\n\r\n"), id="drips"),
    ],
)
async def test_a_receiver_that_takes_for_ever_is_left_and_tried_again(
    delivering, receiving, behave
):
    receiver = await receiving(behave)

    failed = await delivering(total=SHORT)(
        an_endpoint(receiver), WebhookMessage("job_1", BODY)
    )

    assert ("WEBHOOK_TIMEOUT", True) == (failed.code, failed.retryable)


async def test_a_redirect_to_a_private_address_is_not_followed(delivering, receiving):
    inside = await receiving(answers(200))
    receiver = await receiving(answers(307, Location=inside.url()))

    failed = await delivering()(an_endpoint(receiver), WebhookMessage("job_1", BODY))

    assert ("WEBHOOK_REDIRECT", True) == (failed.code, failed.retryable)
    assert 0 == inside.connections


async def test_410_says_that_the_endpoint_is_to_be_disabled(delivering, receiving):
    receiver = await receiving(answers(410))

    gone = await delivering()(an_endpoint(receiver), WebhookMessage("job_1", BODY))

    assert is_gone(gone)
    assert not gone.retryable


@pytest.mark.parametrize("status", [429, 503])
async def test_a_receiver_that_asks_for_a_wait_gets_it(delivering, receiving, status):
    receiver = await receiving(answers(status, Retry_After="60"))

    failed = await delivering()(an_endpoint(receiver), WebhookMessage("job_1", BODY))

    assert timedelta(seconds=60) <= failed.retry_after < timedelta(seconds=66)


async def test_an_endless_answer_is_an_answer(delivering, receiving):
    receiver = await receiving(pours(OK + b"\r\n", b"x" * 100))

    said = await delivering()(an_endpoint(receiver), WebhookMessage("job_1", BODY))

    assert Delivered(status=200) == said
    await receiver.deserted()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_receiver_can_verify_what_it_is_sent(delivering, receiving, version):
    receiver = await receiving(answers(204))
    rotated = an_endpoint(receiver, version=2, rotated_at=SystemClock().now())

    await delivering()(rotated, WebhookMessage("job_1", BODY, "req-1", "00-ab-cd-01"))

    request = receiver.requests[0]
    secret = webhook.secret(MASTER, rotated.id, version)
    event = verify_webhook(request.body, request.headers, secret)
    assert "job.succeeded" == event["type"]
    assert ("job_1", "req-1", "00-ab-cd-01") == (
        request.headers["webhook-id"],
        request.headers["x-request-id"],
        request.headers["traceparent"],
    )


class Town:
    """A worker with few slots, and a receiver that hangs beside one that answers."""

    def __init__(self, backburner, hanging, quick):
        self.backburner = backburner
        self.hanging = hanging
        self.quick = quick

    async def tell(self, receiver, count):
        return await self.backburner.submit_many("tell", [str(receiver.port)] * count)


@pytest.fixture
async def town(tmp_path, receiving, egress):
    """Build towns whose deliveries do, or do not, keep receivers apart."""
    async with AsyncExitStack() as stack:

        async def build(*, is_fair):
            hanging, quick = await receiving(hangs), await receiving(answers(200))
            endpoints = {str(r.port): an_endpoint(r) for r in (hanging, quick)}
            clock, dice = SystemClock(), SystemDice()
            sender = WebhookSender(egress(), MASTER, clock)
            fair = Deliver(
                sender, ReceiverLimits(clock, dice, slots=SLOTS), clock, dice
            )

            @capability("tell", queue="deliveries", retry=SCHEDULE)
            async def tell(ctx: Context, to: str) -> Delivered | Snooze | Failed:
                message = WebhookMessage(ctx.job.id, BODY)
                if is_fair:
                    return await fair(endpoints[to], message)
                said = await sender.send(endpoints[to], message)
                return decide(said, now=clock.now(), roll=0.0)

            settings = Settings(
                store=f"sqlite:///{tmp_path}/jobs.db",
                slots=SLOTS,
                poll_seconds=0.2,
                grace_seconds=0,
            )
            backburner = Backburner(settings, capabilities=[tell])
            await stack.enter_async_context(backburner)
            await backburner.start_worker()
            return Town(backburner, hanging, quick)

        yield build


async def test_a_receiver_that_hangs_does_not_keep_the_others_waiting(town):
    street = await town(is_fair=True)
    await street.tell(street.hanging, 5 * SLOTS)
    await street.hanging.called.wait()

    tickets = await street.tell(street.quick, 2 * SLOTS)
    jobs = [await ticket.wait(timeout=PATIENCE) for ticket in tickets]

    assert {"succeeded"} == {job.state.value for job in jobs}
    assert SLOTS > len(street.hanging.requests)


async def test_control_without_turns_a_receiver_that_hangs_takes_all_slots(town):
    street = await town(is_fair=False)
    await street.tell(street.hanging, 5 * SLOTS)
    async with asyncio.timeout(PATIENCE):
        while len(street.hanging.requests) < SLOTS:
            street.hanging.called.clear()
            await street.hanging.called.wait()

    [ticket] = await street.tell(street.quick, 1)
    job = await ticket.wait(timeout=1.0)

    assert "queued" == job.state.value
    assert [] == street.quick.requests
