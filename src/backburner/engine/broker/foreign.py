"""
Processes messages that other programs put on a broker's queues.

A request becomes a job. A dead letter that was moved back becomes a retry. Anything
else goes to the queue's dead letters with a code and a reason and stays there until
somebody moves it. Messages are redelivered only if the store or the broker is
unavailable, so none circulates for ever.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from backburner.domain.errors import (
    BackburnerError,
    BudgetExhausted,
    CallerError,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    UnknownCapability,
    readable,
)
from backburner.domain.groups.flow import NewFlow
from backburner.domain.jobs.job import JobState, NewJob, Owner
from backburner.domain.message import Refused, Request, Returned, read, refusal
from backburner.engine.access.keys import is_user
from backburner.engine.engine import Engine
from backburner.engine.observability import telemetry
from backburner.engine.submit.submission import LOCAL, Options, refused_field
from backburner.ports.broker import Broker, BrokerMessage, DeadLetter
from backburner.ports.log import log

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_FIELDS: Final = {
    "callback": "callbackUrl",
    "callback.url": "callbackUrl",
    "tokens": "tokenReservation.tokensReserved",
}
"""The name of a field of `Options` in a message."""

Reader = Callable[[Request], NewFlow | None]
"""
Converts a request in an application's own format into a flow with an idempotency key.

Returns `None` if it is not in that format. Raises `CallerError` to refuse it.
"""


class ForeignMessages:
    """Processes messages of other programs."""

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        *,
        limit: int,
        readers: Mapping[str, Reader] | None = None,
    ) -> None:
        """
        Create it; `limit` is the maximum size of a body in bytes.

        `readers` are, by queue, the parsers of applications with their own message
        format.
        """
        self._engine = engine
        self._readers = readers or {}
        self._broker = broker
        self._limit = limit

    async def __call__(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        """
        Process messages of a queue; afterwards they can be acknowledged.

        If this raises, all of them are redelivered. Jobs are therefore stored last, in
        one transaction, so that a message without an id is not stored twice.
        """
        refused: list[Refused] = []
        asked: list[tuple[Request, NewJob]] = []
        flows: list[tuple[Request, NewFlow]] = []
        for message in messages:
            found = read(message.body, message.id, limit=self._limit)
            if isinstance(found, Returned):
                await self._retry(queue, message, found)
            elif isinstance(found, Refused):
                refused.append(found)
            elif isinstance(found, Request):
                try:
                    flow = self._read(queue, found)
                    if flow is None:
                        asked.append((found, self._prepare(queue, found)))
                    else:
                        flows.append((found, flow))
                except CallerError as error:
                    refused.append(_refused(found, error))
        await self._publish_dead_letters(queue, refused)
        # Before the jobs: all flows have a key, so receiving a message again is
        # harmless.
        await self._submit_flows(queue, flows)
        await self._submit(queue, asked)

    async def _submit(
        self, queue: str, asked: Sequence[tuple[Request, NewJob]]
    ) -> None:
        if not asked:
            return
        try:
            await self._engine.store_jobs([job for _, job in asked])
        except CallerError as error:
            if len(asked) == 1:
                await self._publish_dead_letters(queue, [_refused(asked[0][0], error)])
                return
            # All or none were stored, so none was: store each separately to find the
            # cause.
            for one in asked:
                await self._submit(queue, [one])
        else:
            telemetry.foreign_messages.labels(queue, "submitted").inc(len(asked))

    async def _submit_flows(
        self, queue: str, flows: Sequence[tuple[Request, NewFlow]]
    ) -> None:
        for asked, flow in flows:
            try:
                await self._engine.flows.store([flow])
            except CallerError as error:
                await self._publish_dead_letters(queue, [_refused(asked, error)])
            else:
                telemetry.foreign_messages.labels(queue, "submitted").inc()

    def _read(self, queue: str, asked: Request) -> NewFlow | None:
        reader = self._readers.get(queue)
        return None if reader is None else reader(asked)

    def _prepare(self, queue: str, asked: Request) -> NewJob:
        try:
            return self._engine.prepare(
                asked.capability, asked.input, _options(queue, asked)
            )
        except BackburnerError:
            raise
        except Exception as error:  # a validator or an estimate raised it, permanently
            kind = type(error).__name__
            raise InvalidInput(f"input: reading it raised {kind}") from error

    async def _retry(self, queue: str, message: BrokerMessage, found: Returned) -> None:
        jobs = await self._engine.store.find([found.job])
        dead = [
            job
            for job in jobs
            if (job.state, job.generation) == (JobState.FAILED, found.generation)
        ]
        try:
            for job in dead:
                await self._engine.retry(job.id, job.owner)
                telemetry.foreign_messages.labels(queue, "retried").inc()
        except (IllegalTransition, JobNotFound):
            dead = []  # another process was faster
        except CallerError as error:
            # It stays a dead letter, as its budget is exhausted: the message is
            # returned.
            await self._broker.publish_dead_letters(
                queue, [DeadLetter(message.id, message.body)]
            )
            log.warning("dead letter not retried", queue=queue, code=error.code)
        if not dead:
            # Only log the id of a job that exists: any other text may be a user's.
            known = jobs[0].id if jobs else None
            log.info("dead letter is stale", queue=queue, job_id=known)
            telemetry.foreign_messages.labels(queue, "stale").inc()

    async def _publish_dead_letters(
        self, queue: str, refused: Sequence[Refused]
    ) -> None:
        if not refused:
            return
        now = self._engine.now()
        await self._broker.publish_dead_letters(
            queue,
            [DeadLetter(one.original.id, refusal(one, queue, now)) for one in refused],
        )
        for one in refused:
            log.warning("message refused", queue=queue, code=one.code)
            telemetry.foreign_messages.labels(queue, "refused").inc()


def message_options(asked: Request) -> dict[str, Any]:
    """Return the owner that a message names, and its request id if it is valid."""
    user = LOCAL.user if asked.user is None else str(asked.user)
    if not is_user(user):
        raise refused_field("userId", "must be 1 to 200 visible characters")
    owner = Owner(LOCAL.tenant, user)
    return {"owner": owner, "request_id": _request_id(asked.request_id)}


def _options(queue: str, asked: Request) -> Options:
    """Return the options of a request: its capability's queue and its user."""
    is_held = asked.tokens is not None
    held = f"tokenReservation:{asked.tokens}:{asked.window}"
    return Options(
        **message_options(asked),
        idempotency_key=asked.request_id or _key(queue, asked.original.id),
        callback=asked.callback,
        tokens=asked.tokens,
        tags=[held] if is_held else (),
    )


def _request_id(request_id: str | None) -> str | None:
    """
    Return the request id for logs if it is valid, otherwise none.

    It may be user text.
    """
    is_one = request_id is not None and _REQUEST_ID.fullmatch(request_id)
    return request_id if is_one else None


def _key(queue: str, message_id: str) -> str | None:
    """Return an idempotency key that is derived from a message's id."""
    if not message_id:
        return None
    return hashlib.sha256(f"{queue} {message_id}".encode(errors="replace")).hexdigest()


def _refused(asked: Request, error: CallerError) -> Refused:
    return Refused(asked.original, error.code, readable(_reason(error)))


def _reason(error: CallerError) -> str:
    """Return the error with the field names of the message."""
    if isinstance(error, BudgetExhausted):
        return f"{error}; there is room again in {error.retry_after} s"
    if not isinstance(error, InvalidInput | UnknownCapability) or not error.fields:
        return str(error)
    reasons = [f"{_FIELDS.get(f.path, f.path)}: {f.message}" for f in error.fields]
    return "; ".join(reasons)
