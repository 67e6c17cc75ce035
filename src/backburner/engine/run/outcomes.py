"""Decides the outcome of an attempt from an answer, an exception or an interruption."""

from datetime import timedelta
from enum import Enum, auto
from typing import Any

from backburner.domain.errors import (
    BlobMissing,
    PermanentError,
    Throttled,
    TransactionTooLong,
    UnknownCapability,
    WorkError,
    readable,
)
from backburner.domain.jobs.job import Claim
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
from backburner.engine.registry import Capability
from backburner.engine.run.tracing import trace_of

LONGEST_WAIT = 365 * 86_400.0


class Interruption(Enum):
    """Why a handler is interrupted."""

    LOST = auto()
    """This worker no longer holds the job: it was cancelled, or the lease was lost."""
    TIMED_OUT = auto()
    EXPIRED = auto()


def of_answer(capability: Capability[Any, Any], answer: Any) -> Outcome:
    """Return the outcome for a handler's return value."""
    if not isinstance(answer, Failed | Snooze | Cancel):
        return _dumped(capability, answer)
    match answer:
        case Failed(str(), str(message), bool(), None | timedelta()):
            return answer._replace(message=readable(message))
        case Snooze(timedelta(), str(reason)) | Cancel(str(reason)):
            return answer._replace(reason=readable(reason))
        case _:
            kind = type(answer).__name__
            message = f"the handler's {kind} has a value of the wrong type"
            return Failed("INVALID_OUTPUT", message, retryable=False)


def _dumped(capability: Capability[Any, Any], answer: Any) -> Outcome:
    try:
        write = capability.output.serializer.to_json
        text = write(answer, by_alias=True, warnings="error")
    except Exception as error:  # noqa: BLE001 - a handler may return anything
        message = readable(f"the result does not match its declared type: {error}")
        return Failed("INVALID_OUTPUT", message, retryable=False)
    return Done(text.decode())


def of_exception(error: BaseException) -> Outcome:
    """Return the outcome for an exception of a handler: a wait or a failure."""
    suspended = suspended_by(error)
    return classify(error) if suspended is None else Suspension(suspended.wait)


def classify(error: BaseException) -> Failed:
    """Convert a handler's exception into a failure. Only this function does."""
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
            return Failed(TIMEOUT, message or "the handler exceeded a time limit")
        case _:
            return Failed(UNEXPECTED, f"{type(error).__name__}: {message}")


def _message(error: BaseException) -> str:
    try:
        return readable(str(error))
    except Exception:  # noqa: BLE001 - an exception's own text may raise
        return "the error has no readable message"


def of_interruption(why: Interruption) -> Outcome | None:
    """Return the outcome of an interrupted attempt; `None` if it lost its job."""
    match why:
        case Interruption.LOST:
            return None
        case Interruption.TIMED_OUT:
            return Failed(TIMEOUT, "the attempt exceeded the capability's timeout")
        case Interruption.EXPIRED:
            return Expired()


def of_unknown(claim: Claim, wait: timedelta) -> Failed:
    """Return the outcome of a job whose capability this worker does not have."""
    # Another worker may have it, during a roll-out or because two applications share
    # a queue: wait without using an attempt, until the limit on such waits ends the
    # job.
    message = f"this worker has no capability {claim.capability!r}"
    return Failed(UnknownCapability.code, message, True, wait)
