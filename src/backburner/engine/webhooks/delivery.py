"""
Sends one webhook and classifies the receiver's answer.

It keeps no state and tries once. Retries, history and dead letter are those of the
delivery job.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from pydantic import BaseModel

from backburner.domain.jobs.job import Instant
from backburner.domain.jobs.outcome import Failed, Snooze
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.webhooks.webhook import Endpoint, live_versions, secret, sign
from backburner.engine.webhooks.receiver_limits import ReceiverLimits
from backburner.ports.clock import Clock, Dice
from backburner.ports.egress import Answer, Egress, Silence

SCHEDULE: Final = RetryPolicy.listed(
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    *(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 24)),
    spread=0.1,
)
"""The delays of the attempts: three days in all."""

STATUS: Final = "WEBHOOK_STATUS"
REDIRECT: Final = "WEBHOOK_REDIRECT"
GONE: Final = "WEBHOOK_GONE"
DISABLED: Final = "WEBHOOK_DISABLED"
REFUSED: Final = "WEBHOOK_REFUSED"
TLS: Final = "WEBHOOK_TLS"
TIMEOUT: Final = "WEBHOOK_TIMEOUT"
CUT: Final = "WEBHOOK_CUT"

SOONEST: Final = timedelta(seconds=5)
LATEST: Final = timedelta(hours=24)
"""The range of delays that a receiver may request with `Retry-After`."""

SILENCES: Final[Mapping[Silence, Failed]] = {
    Silence.REFUSED: Failed(REFUSED, "the address cannot be reached or is not allowed"),
    Silence.UNTRUSTED: Failed(TLS, "the receiver's certificate or TLS is not valid"),
    Silence.TIMED_OUT: Failed(
        TIMEOUT, "the receiver's answer was not complete in time"
    ),
    Silence.CUT: Failed(CUT, "the connection ended before the receiver's answer"),
}
_LATER: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
)


class WebhookMessage(NamedTuple):
    """A webhook message; id and body are the same at every attempt."""

    id: str
    body: bytes
    request_id: str | None = None
    traceparent: str | None = None


class Delivered(BaseModel):
    """The receiver accepted the message."""

    status: int
    """The receiver's status code."""


Delivery: TypeAlias = Delivered | Snooze | Failed
"""The result of a delivery, as a handler may return it."""


def signed(
    message: WebhookMessage, secrets: Sequence[str], now: Instant
) -> dict[str, str]:
    """Return the signed headers of a message that is sent now."""
    timestamp = now // 1000
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Backburner",
        "webhook-id": message.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secrets, message.id, timestamp, message.body),
    }
    for name, value in (
        ("X-Request-ID", message.request_id),
        ("traceparent", message.traceparent),
    ):
        if value and value.isascii() and value.isprintable():
            headers[name] = value.strip()
    return headers


class WebhookSender:
    """Signs messages and posts them."""

    def __init__(self, egress: Egress, master: bytes, clock: Clock) -> None:
        self._egress = egress
        self._master = master
        self._clock = clock

    async def send(
        self, endpoint: Endpoint, message: WebhookMessage
    ) -> Answer | Silence:
        """Post a message, signed for this attempt with every valid secret."""
        now = self._clock.now()
        secrets = [
            secret(self._master, endpoint.id, version)
            for version in live_versions(endpoint, now)
        ]
        headers = signed(message, secrets, now)
        return await self._egress.post(endpoint.url, headers=headers, body=message.body)


class Deliver:
    """Delivers a message to an endpoint within the receiver's limits."""

    def __init__(
        self,
        sender: WebhookSender,
        receiver_limits: ReceiverLimits,
        clock: Clock,
        dice: Dice,
    ) -> None:
        self._sender = sender
        self._receiver_limits = receiver_limits
        self._clock = clock
        self._dice = dice

    async def __call__(self, endpoint: Endpoint, message: WebhookMessage) -> Delivery:
        """Try once; `is_gone` says whether the endpoint must be disabled."""
        if endpoint.disabled_at is not None:
            return Failed(DISABLED, "the endpoint is disabled", retryable=False)
        answer = await self._receiver_limits.call(
            endpoint, lambda: self._sender.send(endpoint, message)
        )
        if isinstance(answer, Snooze | Failed):
            return answer
        delivery = decide(answer, now=self._clock.now(), roll=self._dice.roll())
        if isinstance(delivery, Failed) and delivery.retry_after is not None:
            self._receiver_limits.rest(endpoint, delivery.retry_after)
        return delivery


def decide(
    answer: Answer | Silence, *, now: Instant, roll: float
) -> Delivered | Failed:
    """Return the outcome of a delivery for an answer, or for none."""
    if isinstance(answer, Silence):
        return SILENCES[answer]
    status = answer.status
    message = f"the receiver answered {status}"
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Delivered(status=status)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Failed(REDIRECT, f"{message}: redirects are not followed")
    if status == HTTPStatus.GONE:
        return Failed(GONE, f"{message}: the endpoint is disabled", retryable=False)
    asked = answer.headers.get("retry-after", "") if status in _LATER else ""
    return Failed(STATUS, message, retry_after=_wait(asked, now, roll))


def is_gone(delivery: Delivery) -> bool:
    """Say whether the receiver answered that it wants no more messages."""
    return isinstance(delivery, Failed) and delivery.code == GONE


def _wait(asked: str, now: Instant, roll: float) -> timedelta | None:
    """Return the delay from `Retry-After` (seconds or date), bounded, with jitter."""
    wait = _seconds(asked.strip(), now)
    if wait is None:
        return None
    return min(max(wait, SOONEST) * (1 + roll / 10), LATEST)


def _seconds(asked: str, now: Instant) -> timedelta | None:
    if asked.isascii() and asked.isdecimal():
        return min(timedelta(seconds=int(asked[:12])), LATEST)
    try:
        at = parsedate_to_datetime(asked)
    except (ValueError, IndexError, OverflowError):
        return None
    then = at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    return min(timedelta(seconds=then) - timedelta(milliseconds=now), LATEST)
