"""What an answer means, what a receiver is sent, and when it is sent again."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.outcome import Failed
from backburner.domain.jobs.transitions import Limits, settle
from backburner.domain.webhooks import delivery as deliveries
from backburner.domain.webhooks import webhook
from backburner.domain.webhooks.webhook import Endpoint
from backburner.engine.webhooks.deliveries import delivering as delivering_capability
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
from backburner.ports.egress import Answer, Silence
from backburner.testing.doubles import FrozenClock, SeededDice
from backburner.testing.samples import ANN, NOON, a_claim

MASTER = b"m" * 32
ENDPOINT = Endpoint("ep_1", ANN, "https://example.com/hook", NOON)
SECOND = timedelta(seconds=1)


def lifetime(retry_after):
    """Return how long a delivery lives whose receiver asks for the same wait always."""
    wait = after(503, retry_after=str(retry_after)).retry_after
    found = delivering_capability(None, None, None)
    limits = Limits(throttled=found.patience or Limits().throttled)
    claim, lived = a_claim(max_attempts=found.retry.max_attempts), timedelta()
    while True:
        change = settle(
            claim,
            Failed("WEBHOOK_STATUS", "503", retry_after=wait),
            now=NOON,
            backoff=SECOND,
            limits=limits,
        )
        if change.to is JobState.FAILED:
            return lived
        lived += wait
        claim = claim._replace(throttled=change.throttled)


@pytest.mark.parametrize("retry_after", [60, 600, 25_000, 50_000, 86_400, 999_999])
def test_a_receiver_that_says_when_is_tried_as_long_as_one_that_fails(retry_after):
    assert SCHEDULE.longest() <= lifetime(retry_after)


def after(status, **headers):
    named = {name.replace("_", "-").lower(): text for name, text in headers.items()}
    return decide(Answer(status, named), now=NOON, roll=0.0)


class Taker:
    """An `Egress` that keeps what it is given."""

    def __init__(self, *says):
        self.says = list(says)
        self.sent = []

    async def post(self, url, *, headers, body):
        self.sent.append((url, headers, body))
        return self.says.pop(0) if self.says else Answer(200, {})


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def delivering(clock):
    def build(egress):
        dice = SeededDice()
        sender = WebhookSender(egress, MASTER, clock)
        return Deliver(sender, ReceiverLimits(clock, dice, slots=100), clock, dice)

    return build


@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
def test_any_2xx_is_a_delivery(status):
    assert Delivered(status=status) == after(status)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_a_failure_that_is_tried_again(status):
    failed = after(status, Location="http://10.0.0.1/secret")

    assert ("WEBHOOK_REDIRECT", True, None) == (
        failed.code,
        failed.retryable,
        failed.retry_after,
    )
    assert "10.0.0.1" not in failed.message


@pytest.mark.parametrize(
    "status", [100, 101, 400, 401, 404, 408, 413, 429, 500, 502, 503, 504, 599, 999]
)
def test_any_other_status_is_tried_again_by_the_schedule(status):
    assert Failed("WEBHOOK_STATUS", f"the receiver answered {status}") == after(status)


def test_410_is_not_tried_again_and_disables():
    gone = after(410, Retry_After="5")

    assert ("WEBHOOK_GONE", False) == (gone.code, gone.retryable)
    assert is_gone(gone)
    assert not is_gone(after(404))
    assert not is_gone(after(200))


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("60", 60),
        (" 60 ", 60),
        ("0", 5),
        ("1", 5),
        ("86400", 86_400),
        ("86401", 86_400),
        ("9" * 5000, 86_400),
        ("Thu, 01 Jan 2026 12:01:00 GMT", 60),
        ("Thu, 01 Jan 2026 12:01:00 -0000", 60),
        ("Thu, 01 Jan 2026 14:02:00 +0200", 120),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 5),
        ("Fri, 01 Jan 2100 12:00:00 GMT", 86_400),
    ],
)
def test_a_wait_that_is_asked_for_is_kept_within_bounds(status, asked, seconds):
    assert timedelta(seconds=seconds) == after(status, Retry_After=asked).retry_after


@pytest.mark.parametrize(
    "asked", ["", "soon", "-1", "1.5", "1e9", "٣", "Thu, 99 Jan", "0x10", "1, 2"]
)
def test_a_wait_that_cannot_be_read_is_left_to_the_schedule(asked):
    assert after(429, Retry_After=asked).retry_after is None


@pytest.mark.parametrize("status", [200, 301, 404, 500])
def test_only_429_and_503_may_ask_for_a_wait(status):
    assert getattr(after(status, Retry_After="60"), "retry_after", None) is None


@given(st.text(max_size=40), st.floats(0.0, 1.0, exclude_max=True))
def test_any_text_may_be_in_retry_after(text, roll):
    failed = decide(Answer(503, {"retry-after": text}), now=NOON, roll=roll)

    wait = failed.retry_after
    assert wait is None or 5 * SECOND <= wait <= timedelta(hours=24)


def test_receivers_that_ask_for_the_same_wait_are_not_called_at_once():
    answer = Answer(429, {"retry-after": "100"})
    waits = {decide(answer, now=NOON, roll=n / 10).retry_after for n in range(10)}

    assert 10 == len(waits)
    assert 100 * SECOND == min(waits)
    assert 110 * SECOND > max(waits)


@pytest.mark.parametrize(
    ("silence", "code"),
    [
        (Silence.REFUSED, "WEBHOOK_REFUSED"),
        (Silence.UNTRUSTED, "WEBHOOK_TLS"),
        (Silence.TIMED_OUT, "WEBHOOK_TIMEOUT"),
        (Silence.CUT, "WEBHOOK_CUT"),
    ],
)
def test_no_answer_is_tried_again_by_the_schedule(silence, code):
    failed = decide(silence, now=NOON, roll=0.0)

    assert (code, True, None) == (failed.code, failed.retryable, failed.retry_after)


def test_every_silence_has_its_words():
    assert all(decide(silence, now=NOON, roll=0.0).message for silence in Silence)


def test_the_schedule_has_ten_attempts_in_three_days():
    delays = [SCHEDULE.delay(attempt, 0.0) for attempt in range(1, 10)]

    hours = [timedelta(hours=n) for n in (2, 5, 10, 14, 20, 24)]
    minutes = [timedelta(minutes=n) for n in (5, 30)]
    assert [5 * SECOND, *minutes, *hours] == delays
    assert deliveries.MAX_ATTEMPTS == SCHEDULE.max_attempts
    assert SCHEDULE.delay(9, 0.0) < SCHEDULE.delay(9, 0.5) < timedelta(hours=26.4)


async def test_a_message_is_sent_signed_by_the_endpoints_secret(delivering):
    egress = Taker()
    message = WebhookMessage("job_1", b'{"a":1}', "req-1", "00-trace-span-01")

    await delivering(egress)(ENDPOINT, message)

    [(url, headers, body)] = egress.sent
    secret = webhook.secret(MASTER, "ep_1", 1)
    assert (ENDPOINT.url, message.body) == (url, body)
    assert {
        "Content-Type": "application/json",
        "User-Agent": "Backburner",
        "webhook-id": "job_1",
        "webhook-timestamp": str(NOON // 1000),
        "webhook-signature": webhook.sign([secret], "job_1", NOON // 1000, body),
        "X-Request-ID": "req-1",
        "traceparent": "00-trace-span-01",
    } == headers


async def test_the_id_is_the_same_at_every_attempt_and_the_time_is_not(
    delivering, clock
):
    egress = Taker(Answer(500, {}))
    deliver, message = delivering(egress), WebhookMessage("job_1", b"{}")

    await deliver(ENDPOINT, message)
    clock.advance(5 * SECOND)
    await deliver(ENDPOINT, message)

    first, second = (headers for _, headers, _ in egress.sent)
    assert first["webhook-id"] == second["webhook-id"]
    assert 5 == int(second["webhook-timestamp"]) - int(first["webhook-timestamp"])
    assert first["webhook-signature"] != second["webhook-signature"]


async def test_two_secrets_sign_for_a_day_after_a_rotation(delivering, clock):
    egress = Taker()
    deliver, rotated = delivering(egress), webhook.rotate(ENDPOINT, now=NOON)

    await deliver(rotated, WebhookMessage("job_1", b"{}"))
    clock.advance(timedelta(days=1))
    await deliver(rotated, WebhookMessage("job_1", b"{}"))

    signatures = [headers["webhook-signature"] for _, headers, _ in egress.sent]
    assert [2, 1] == [len(text.split()) for text in signatures]


@pytest.mark.parametrize("text", ["a\r\nX: y", "é", "\x00", ""])
async def test_what_is_no_header_is_not_sent_as_one(delivering, text):
    egress = Taker()

    await delivering(egress)(ENDPOINT, WebhookMessage("job_1", b"{}", text, text))

    assert not {"X-Request-ID", "traceparent"} & egress.sent[0][1].keys()


async def test_a_disabled_endpoint_is_not_called(delivering):
    egress = Taker()
    disabled = replace(ENDPOINT, disabled_at=NOON, disabled_reason="410")

    failed = await delivering(egress)(disabled, WebhookMessage("job_1", b"{}"))

    assert ("WEBHOOK_DISABLED", False) == (failed.code, failed.retryable)
    assert [] == egress.sent
    assert not is_gone(failed)


async def test_a_receiver_that_asks_for_a_wait_is_left_alone_by_others_too(
    delivering, clock
):
    egress = Taker(Answer(429, {"retry-after": "30"}))
    deliver = delivering(egress)

    await deliver(ENDPOINT, WebhookMessage("job_1", b"{}"))
    other = await deliver(ENDPOINT, WebhookMessage("job_2", b"{}"))
    clock.advance(timedelta(seconds=33))
    again = await deliver(ENDPOINT, WebhookMessage("job_2", b"{}"))

    assert 30 * SECOND <= other.delay
    assert Delivered(status=200) == again
    assert 2 == len(egress.sent)


async def test_what_the_egress_raises_is_not_hidden(delivering):
    class Broken:
        async def post(self, url, *, headers, body):
            raise RuntimeError(url, headers, body)

    deliver = delivering(Broken())
    for _ in range(9):
        with pytest.raises(RuntimeError):
            await deliver(ENDPOINT, WebhookMessage("job_1", b"{}"))


async def test_an_interrupted_delivery_gives_its_place_back(delivering):
    class Hanging:
        async def post(self, url, *, headers, body):
            del url, headers, body
            await asyncio.Event().wait()

    deliver = delivering(Hanging())
    for _ in range(9):
        call = asyncio.create_task(deliver(ENDPOINT, WebhookMessage("job_1", b"{}")))
        await asyncio.wait({call}, timeout=0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
