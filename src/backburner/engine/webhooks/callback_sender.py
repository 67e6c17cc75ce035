"""
Sends signed callbacks of applications to URLs given by callers.

The secret is derived from the master key, the topic and the receiver's origin. A
receiver that has the master key can derive it; others are given theirs. Retries are
those of the job that sends the callback.
"""

from http import HTTPStatus
from typing import Final

from backburner.domain.errors import (
    ConfigurationError,
    FieldError,
    InvalidInput,
    PermanentError,
    Throttled,
    TransientError,
)
from backburner.domain.jobs.job import Claim
from backburner.domain.lanes.rate_limit_headers import rate_limit_info
from backburner.domain.webhooks.address import Reach, check_callback, check_url
from backburner.domain.webhooks.webhook import secret
from backburner.engine.webhooks.delivery import (
    REFUSED,
    SILENCES,
    STATUS,
    WebhookMessage,
    signed,
)
from backburner.ports.clock import Clock
from backburner.ports.egress import Answer, Egress, Silence
from backburner.ports.log import log

VERSION: Final = 1


class CallbackSender:
    """Signs messages and posts them."""

    def __init__(
        self, reach: Reach, master: bytes, clock: Clock, egress: Egress | None = None
    ) -> None:
        """
        Create a sender.

        Without an `egress` it signs and checks URLs but sends nothing.
        """
        self._reach = reach
        self._master = master
        self._clock = clock
        self._egress = egress

    def secret(self, topic: str, url: str) -> str:
        """
        Return the secret that signs messages of a topic to a URL.

        Every origin (scheme, host and port) has its own secret, so a receiver cannot
        forge messages to another receiver.
        """
        if not self._master:
            raise ConfigurationError(
                "BACKBURNER_WEBHOOK_SECRET is not set: nothing can be signed"
            )
        target = check_url(url, self._reach)
        origin = f"{target.scheme}://{target.host}:{target.port}"
        return secret(self._master, f"{topic} {origin}", VERSION)

    def check(self, url: str, path: str) -> str:
        """Return a URL in normal form; the error for an invalid one names `field`."""
        if not self._master:
            raise _refused(path, "BACKBURNER_WEBHOOK_SECRET is not set here")
        try:
            return str(check_callback(url, self._reach))
        except ValueError as error:
            raise _refused(path, str(error)) from None

    async def send(self, job: Claim, url: str, body: bytes, topic: str) -> None:
        """
        Post a message under the job's id; return once the receiver has accepted it.

        Receivers of another topic or origin have another secret. No answer, 5xx and 429
        lead to another attempt; any other error answer is final. A 429 with
        `Retry-After` uses no attempt.
        """
        if self._egress is None:
            raise TransientError("this process does not send callbacks")
        message = WebhookMessage(job.id, body, job.request_id, job.traceparent)
        try:
            key = self.secret(topic, url)
        except ValueError as error:
            raise PermanentError(f"callback URL: {error}", code=REFUSED) from None
        headers = signed(message, [key], self._clock.now())
        self._judge(await self._egress.post(url, headers=headers, body=body))
        log.info("message accepted", request_id=job.request_id)

    def _judge(self, answer: Answer | Silence) -> None:
        if isinstance(answer, Silence):
            failed = SILENCES[answer]
            raise TransientError(failed.message, code=failed.code)
        status = answer.status
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return
        message = f"the receiver answered {status}"
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            wait = rate_limit_info(
                status, answer.headers, None, now=self._clock.now()
            ).wait
            seconds = None if wait is None else wait / 1000
            raise Throttled(message, retry_after=seconds, code=STATUS)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TransientError(message, code=STATUS)
        raise PermanentError(message, code=STATUS)


def _refused(path: str, message: str) -> InvalidInput:
    return InvalidInput(f"{path}: {message}", [FieldError(path, message)])
