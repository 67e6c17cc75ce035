"""One attempt: from a claim to the outcome that settles it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Any

import orjson
from pydantic import ValidationError

from backburner.domain.blob import MARK, is_large
from backburner.domain.errors import (
    BlobMissing,
    PermanentError,
    StoreUnavailable,
    Throttled,
    WorkError,
    readable,
)
from backburner.domain.job import Claim
from backburner.domain.outcome import (
    Cancel,
    Done,
    Expired,
    Failed,
    HandedBack,
    Outcome,
    Snooze,
)
from backburner.domain.transitions import TIMEOUT
from backburner.engine.context import Context, Submit
from backburner.engine.payloads import Payloads
from backburner.engine.registry import Capability
from backburner.ports.log import log

LONGEST_WAIT = 365 * 86_400.0
STOW_RETRY_SECONDS = 0.2
SHORTEST_UNKNOWN = timedelta(seconds=5)
HOUR = timedelta(hours=1)


class Interruption(Enum):
    """Why a handler is not let to finish."""

    LOST = auto()
    """The job is not this worker's any more: cancelled, or the lease is gone."""
    TIMED_OUT = auto()
    EXPIRED = auto()
    HANDED_BACK = auto()


class Attempt:
    """A handler at work on one claim."""

    __slots__ = (
        "capability",
        "claim",
        "context",
        "has_submitted",
        "interruption",
        "is_started",
        "news",
        "report",
        "seconds",
        "task",
    )

    def __init__(self, claim: Claim, capability: Capability[Any, Any] | None) -> None:
        self.claim = claim
        self.capability = capability
        self.context: Context | None = None
        self.interruption: Interruption | None = None
        self.is_started = False
        self.has_submitted = False
        """Whether jobs were made in its settlement."""
        self.report: Callable[[Attempt], None]
        self.news: dict[str, Any] | None = None
        """Progress that was not told yet."""
        self.task: asyncio.Task[None] | None = None
        self.seconds = 0.0
        """How long it may take."""

    def interrupt(self, why: Interruption) -> None:
        """Stop the handler at its next await; the first reason counts."""
        if self.interruption is None:
            self.interruption = why
            if self.is_started and self.task is not None:
                self.task.cancel()

    def told(self) -> str:
        """Write the latest progress as JSON."""
        return orjson.dumps(self.news, option=orjson.OPT_NON_STR_KEYS).decode()

    async def run(
        self,
        report: Callable[["Attempt"], None],
        submit: Submit,
        payloads: Payloads | None = None,
    ) -> Outcome | None:
        """Run the handler; return what it came to, `None` if it does not matter."""
        self.is_started = True
        if self.interruption is not None:
            return _interrupted(self.interruption)
        if self.capability is None:
            return _unknown(self.claim)
        text = self.claim.input
        payloads = payloads or _NO_BLOBS
        if text.startswith(MARK):
            fetched = await self._fetched(payloads)
            if not isinstance(fetched, str):
                return fetched
            text = fetched
        try:
            value = self.capability.input.validate_json(text)
        except ValidationError as error:
            return Failed("INVALID_INPUT", _titles(error), retryable=False)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a validator may raise anything
            return classify(error)
        self.report = report
        self.context = Context(self.claim, self._tell, submit, payloads)
        return await self._answer(self.capability, self.context, payloads, value)

    async def _fetched(self, payloads: Payloads) -> str | Outcome | None:
        """Return the input that the row only names, or why there is none."""
        outcome: Outcome
        try:
            return await payloads.text(self.claim.input)
        except asyncio.CancelledError:
            outcome = Failed("CANCELLED_INSIDE", "it was cancelled from inside")
        except BlobMissing:
            return Failed(BlobMissing.code, "its input is gone", retryable=False)
        except StoreUnavailable as error:
            outcome = Failed(error.code, "its input cannot be read just now")
        if self.interruption is not None:
            return _interrupted(self.interruption)
        return outcome

    async def _stowed(self, outcome: Outcome, payloads: Payloads) -> Outcome:
        """Put a large output away; until that works, the job still runs."""
        while isinstance(outcome, Done) and is_large(outcome.output):
            try:
                stored = await payloads.stow_output(self.claim, outcome.output)
                return Done(stored)
            except StoreUnavailable as error:
                log.warning("output not stored", job_id=self.claim.id, code=error.code)
                await asyncio.sleep(STOW_RETRY_SECONDS)  # noqa: TID251 - see watch
        return outcome

    async def _answer(
        self,
        capability: Capability[Any, Any],
        context: Context,
        payloads: Payloads,
        value: Any,
    ) -> Outcome | None:
        outcome: Outcome | None
        try:
            outcome = _outcome(capability, await capability.handler(context, value))
            outcome = await self._stowed(outcome, payloads)
        except asyncio.CancelledError:
            outcome = Failed(
                "CANCELLED_INSIDE", "its handler was cancelled from inside"
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            outcome = classify(error)
        if self.interruption is not None:
            return _interrupted(self.interruption)
        return outcome

    def came_to(self) -> Outcome | None:
        """Say what an interrupted attempt comes to, however its handler takes it."""
        return None if self.interruption is None else _interrupted(self.interruption)

    def _tell(self, news: dict[str, Any]) -> None:
        self.news = news
        self.report(self)


_NO_BLOBS = Payloads()


def classify(error: BaseException) -> Failed:
    """Say what an exception of a handler means. The only place that does."""
    message = _message(error)
    match error:
        case Throttled(retry_after=float() | int() as seconds):
            wait = timedelta(seconds=min(max(0.0, seconds), LONGEST_WAIT))
            return Failed(error.problem_code, message, True, wait)
        case BlobMissing():
            return Failed(error.code, message, retryable=False)
        case PermanentError():
            return Failed(error.problem_code, message, retryable=False)
        case WorkError():
            return Failed(error.problem_code, message, retryable=error.retryable)
        case TimeoutError():
            return Failed(TIMEOUT, message or "it took too long")
        case _:
            return Failed("UNEXPECTED", f"{type(error).__name__}: {message}")


def _message(error: BaseException) -> str:
    try:
        return readable(str(error))
    except Exception:  # noqa: BLE001 - even its text may be broken
        return "it cannot say what went wrong"


def _interrupted(why: Interruption) -> Outcome | None:
    match why:
        case Interruption.LOST:
            return None
        case Interruption.TIMED_OUT:
            return Failed(TIMEOUT, "it ran longer than its capability allows")
        case Interruption.EXPIRED:
            return Expired()
        case Interruption.HANDED_BACK:
            return HandedBack()


def _unknown(claim: Claim) -> Failed:
    # During a roll-out another worker may know it: wait, at no cost of an attempt, for
    # longer each time, until the limit on such waits ends it.
    wait = min(max(SHORTEST_UNKNOWN, timedelta(milliseconds=claim.throttled)), HOUR)
    message = f"no worker here knows capability {claim.capability!r}"
    return Failed("UNKNOWN_CAPABILITY", message, True, wait)


def _outcome(capability: Capability[Any, Any], answer: Any) -> Outcome:
    match answer:
        case Failed(str(), str(message), bool(), None | timedelta()):
            return answer._replace(message=readable(message))
        case Snooze(timedelta(), str(reason)) | Cancel(str(reason)):
            return answer._replace(reason=readable(reason))
        case Failed() | Snooze() | Cancel():
            message = f"its {type(answer).__name__} holds a value of the wrong type"
            return Failed("INVALID_OUTPUT", message, retryable=False)
        case _:
            return _dumped(capability, answer)


def _dumped(capability: Capability[Any, Any], answer: Any) -> Outcome:
    try:
        text = capability.output.dump_json(answer, by_alias=True, warnings="error")
    except Exception as error:  # noqa: BLE001 - whatever the handler returned
        message = readable(f"its result does not match its type: {error}")
        return Failed("INVALID_OUTPUT", message, retryable=False)
    return Done(text.decode())


def _titles(error: ValidationError) -> str:
    told = error.errors(include_url=False, include_input=False, include_context=False)
    return readable(
        "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in told[:5])
    )
