"""One attempt: from a claim to the outcome that settles it."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from backburner.domain.blobs.blob import is_large
from backburner.domain.errors import (
    BlobMissing,
    ClaimLost,
    PermanentError,
    StoreUnavailable,
    Throttled,
    TransactionTooLong,
    WorkError,
    readable,
)
from backburner.domain.groups.flow import FROM_NEEDS
from backburner.domain.jobs.job import Claim, Need
from backburner.domain.jobs.outcome import (
    Cancel,
    Done,
    Expired,
    Failed,
    Outcome,
    Snooze,
    Suspension,
)
from backburner.domain.jobs.transitions import TIMEOUT, UNEXPECTED
from backburner.domain.jobs.wait import suspended_by
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.models.shapes import mistakes
from backburner.engine.models.spending import Spending
from backburner.engine.models.usage import UsageLog
from backburner.engine.registry import Capability
from backburner.engine.run.context import Context
from backburner.engine.run.needs import input_of, is_apart, whole
from backburner.engine.run.services import Services
from backburner.engine.run.streaming import OutputStream
from backburner.engine.run.tracing import trace_of
from backburner.engine.submit import guarding
from backburner.ports.log import log

LONGEST_WAIT = 365 * 86_400.0
MOST_FAULTS = 5
STOW_RETRY_SECONDS = 0.2
SHORTEST_UNKNOWN = timedelta(seconds=5)
HOUR = timedelta(hours=1)


class Interruption(Enum):
    """Why a handler is not let to finish."""

    LOST = auto()
    """The job is not this worker's any more: cancelled, or the lease is gone."""
    TIMED_OUT = auto()
    EXPIRED = auto()


class _Brought(NamedTuple):
    """What a handler begins with."""

    text: str
    needs: Sequence[Need]


class Attempt:
    """A handler at work on one claim."""

    __slots__ = (
        "capability",
        "claim",
        "context",
        "filled",
        "has_ended",
        "has_submitted",
        "interruption",
        "is_put_off",
        "is_started",
        "task",
    )

    def __init__(self, claim: Claim, capability: Capability[Any, Any] | None) -> None:
        self.claim = claim
        self.capability = capability
        self.context: Context | None = None
        self.interruption: Interruption | None = None
        self.is_started = False
        self.has_ended = False
        """Whether all that is left is to tell what it said."""
        self.has_submitted = False
        """Whether jobs were made in its settlement."""
        self.filled: Collection[int] = ()
        """Batches that got members in its settlement."""
        self.is_put_off = False
        """Whether its settlement changed nothing and must be tried again."""
        self.task: asyncio.Task[None] | None = None

    def interrupt(self, why: Interruption) -> None:
        """Stop the handler at its next await; the first reason counts."""
        if self.interruption is None:
            self.interruption = why
            if self.is_started and self.task is not None:
                self.task.cancel()

    async def run(self, services: Services) -> Outcome | None:
        """Run the handler; return what it came to, `None` if it does not matter."""
        self.is_started = True
        if self.interruption is not None:
            return _interrupted(self.interruption)
        if self.capability is None:
            return _unknown(self.claim)
        payloads = services.payloads or _NO_BLOBS
        text, needs = self.claim.input, self.claim.given
        if is_apart(text) or (needs and any(is_apart(n.output) for n in needs)):
            fetched = await self._fetched(payloads)
            if not isinstance(fetched, _Brought):
                return fetched
            text, needs = fetched.text, fetched.needs
        try:
            fed = _fed(self.capability, needs) if text == FROM_NEEDS else text
            value = self.capability.input.validator.validate_json(fed)
        except ValidationError as error:
            message = readable(mistakes(error, MOST_FAULTS))
            return Failed("INVALID_INPUT", message, retryable=False)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a validator may raise anything
            return classify(error)
        self.context = Context(self.claim, services, needs)
        return await self._answer(self.capability, self.context, payloads, value)

    async def _fetched(self, payloads: Payloads) -> "_Brought | Outcome | None":
        """Return what the row only names, or why it is not there."""
        outcome: Outcome
        try:
            text = self.claim.input
            return _Brought(
                await payloads.text(text) if is_apart(text) else text,
                await whole(self.claim.given, payloads),
            )
        except asyncio.CancelledError:
            outcome = Failed("CANCELLED_INSIDE", "it was cancelled from inside")
        except BlobMissing:
            return Failed(BlobMissing.code, "its input is gone", retryable=False)
        except StoreUnavailable as error:
            outcome = Failed(error.code, "its input cannot be read just now")
        if self.interruption is not None:
            return _interrupted(self.interruption)
        return outcome

    async def _stowed(self, output: str, payloads: Payloads) -> Done:
        """Put a large output away; until that works, the job still runs."""
        while True:
            try:
                return Done(await payloads.stow_output(self.claim, output))
            except StoreUnavailable as error:
                log.warning("output not stored", job_id=self.claim.id, code=error.code)
                await asyncio.sleep(STOW_RETRY_SECONDS)  # noqa: TID251 - see watch

    async def _answer(
        self,
        capability: Capability[Any, Any],
        context: Context,
        payloads: Payloads,
        value: Any,
    ) -> Outcome | None:
        outcome: Outcome | None
        try:
            answer = await capability.handler(context, value)
            context.is_over = True
            outcome = _outcome(capability, answer)
            if context.output_stream is not None:
                _conclude(context.output_stream, outcome)
            if isinstance(outcome, Done) and is_large(outcome.output):
                outcome = await self._stowed(outcome.output, payloads)
        except asyncio.CancelledError:
            outcome = Failed(
                "CANCELLED_INSIDE", "its handler was cancelled from inside"
            )
        except (KeyboardInterrupt, GeneratorExit):  # closed: its loop is gone
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            outcome = _ended_by(error)
        context.end()
        if context.has_steps:
            await self._part(context, outcome)
        spent = context.spent
        if self.interruption is not None:
            return _interrupted(self.interruption)
        paid = outcome if spent is None else _paid(outcome, spent)
        return _with_names(paid, context)

    async def _part(self, context: Context, outcome: Outcome) -> None:
        """Have the results of a run's steps stored, if a later run may need them."""
        if self.interruption is not Interruption.LOST:
            with suppress(asyncio.CancelledError, ClaimLost):
                if isinstance(outcome, Suspension):
                    await context.flush()  # the next run must not pay again
                await context.part(is_done=isinstance(outcome, Done))

    @property
    def output_stream(self) -> OutputStream | None:
        """What its handler said, if anything."""
        return None if self.context is None else self.context.output_stream

    @property
    def usage_log(self) -> UsageLog | None:
        """What its handler used of models, if anything."""
        context = self.context
        return (
            None
            if context is None or context.spent is None
            else context.spent.usage_log
        )

    async def heard_out(
        self, output_stream: OutputStream, outcome: Outcome
    ) -> Outcome | None:
        """Return the outcome when the store has what was said before it."""
        self.has_ended = True
        try:
            await output_stream.told()
        except asyncio.CancelledError:
            lost = Failed("CANCELLED_INSIDE", "it was cancelled from inside")
            return lost if self.interruption is None else self.came_to()
        except Exception as error:  # noqa: BLE001 - its text is not whole
            return classify(error)
        return outcome

    def came_to(self) -> Outcome | None:
        """Say what an interrupted attempt comes to, however its handler takes it."""
        return None if self.interruption is None else _interrupted(self.interruption)


_NO_BLOBS = Payloads()


def _paid(outcome: Outcome, spent: Spending) -> Outcome:
    """Say of a failure whether a call was paid for."""
    if spent.has_paid and isinstance(outcome, Failed):
        return outcome._replace(is_paid=True)
    return outcome


def _fed(capability: Capability[Any, Any], needs: Sequence[Need]) -> str:
    """Return what a step gets from others, if it may have it."""
    text = input_of(needs)
    guarding.check_fed(capability, text)
    return text


def _ended_by(error: BaseException) -> Outcome:
    """Return what an exception of a handler comes to: a wait, or a failure."""
    suspended = suspended_by(error)
    return classify(error) if suspended is None else Suspension(suspended.wait)


def _with_names(outcome: Outcome, context: Context) -> Outcome:
    """Let a run that waits name its waits, which a signal may decide meanwhile."""
    if isinstance(outcome, Suspension):
        return outcome._replace(names=context.open_waits)
    return outcome


def classify(error: BaseException) -> Failed:
    """Say what an exception of a handler means. The only place that does."""
    failed = _classified(error)
    is_meant = failed.retry_after is not None
    return failed if is_meant else failed._replace(trace=trace_of(error))


def _classified(error: BaseException) -> Failed:
    message = _message(error)
    match error:
        case Throttled(retry_after=float() | int() as seconds):
            wait = timedelta(seconds=min(max(0.0, seconds), LONGEST_WAIT))
            return Failed(error.problem_code, message, True, wait, error.lane)
        case BlobMissing() | TransactionTooLong():
            return Failed(error.code, message, retryable=error.retryable)
        case PermanentError():
            return Failed(error.problem_code, message, retryable=False)
        case WorkError():
            return Failed(error.problem_code, message, retryable=error.retryable)
        case TimeoutError():
            return Failed(TIMEOUT, message or "it exceeded its time limit")
        case _:
            return Failed(UNEXPECTED, f"{type(error).__name__}: {message}")


def _message(error: BaseException) -> str:
    try:
        return readable(str(error))
    except Exception:  # noqa: BLE001 - even its text may be broken
        return "the error has no readable message"


def _interrupted(why: Interruption) -> Outcome | None:
    match why:
        case Interruption.LOST:
            return None
        case Interruption.TIMED_OUT:
            return Failed(TIMEOUT, "it ran longer than the timeout of its capability")
        case Interruption.EXPIRED:
            return Expired()


def _conclude(output_stream: OutputStream, outcome: Outcome) -> None:
    """Let the text end as the result says, if that is a text."""
    if isinstance(outcome, Done):
        if outcome.output.startswith('"'):
            output_stream.conclude(orjson.loads(outcome.output))
        output_stream.finish()


def _unknown(claim: Claim) -> Failed:
    # During a roll-out another worker may know it: wait, at no cost of an attempt, for
    # longer each time, until the limit on such waits ends it.
    wait = min(max(SHORTEST_UNKNOWN, timedelta(milliseconds=claim.throttled)), HOUR)
    message = f"this worker has no capability {claim.capability!r}"
    return Failed("UNKNOWN_CAPABILITY", message, True, wait)


def _outcome(capability: Capability[Any, Any], answer: Any) -> Outcome:
    if not isinstance(answer, Failed | Snooze | Cancel):
        return _dumped(capability, answer)
    match answer:
        case Failed(str(), str(message), bool(), None | timedelta()):
            return answer._replace(message=readable(message))
        case Snooze(timedelta(), str(reason)) | Cancel(str(reason)):
            return answer._replace(reason=readable(reason))
        case _:
            message = f"its {type(answer).__name__} holds a value of the wrong type"
            return Failed("INVALID_OUTPUT", message, retryable=False)


def _dumped(capability: Capability[Any, Any], answer: Any) -> Outcome:
    try:
        write = capability.output.serializer.to_json
        text = write(answer, by_alias=True, warnings="error")
    except Exception as error:  # noqa: BLE001 - whatever the handler returned
        message = readable(f"the result does not match its declared type: {error}")
        return Failed("INVALID_OUTPUT", message, retryable=False)
    return Done(text.decode())
