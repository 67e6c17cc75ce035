"""One attempt: from a claim to the outcome that settles it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Any

import orjson
from pydantic import ValidationError

from backburner.domain.errors import PermanentError, Throttled, WorkError, readable
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
from backburner.engine.registry import Capability

LONGEST_WAIT = 365 * 86_400.0


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
        self, report: Callable[["Attempt"], None], submit: Submit
    ) -> Outcome | None:
        """Run the handler; return what it came to, `None` if it does not matter."""
        self.is_started = True
        if self.interruption is not None:
            return _interrupted(self.interruption)
        if self.capability is None:
            return _unknown(self.claim.capability)
        try:
            value = self.capability.input.validate_json(self.claim.input)
        except ValidationError as error:
            return Failed("INVALID_INPUT", _titles(error), retryable=False)
        self.report = report
        context = Context(self.claim, self._tell, submit)
        self.context = context
        return await self._answer(self.capability, context, value)

    async def _answer(
        self, capability: Capability[Any, Any], context: Context, value: Any
    ) -> Outcome | None:
        outcome: Outcome | None
        try:
            outcome = _outcome(capability, await capability.handler(context, value))
        except asyncio.CancelledError:
            outcome = Failed(
                "CANCELLED_INSIDE", "its handler was cancelled from inside"
            )
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            outcome = classify(error)
        if self.interruption is not None:
            return _interrupted(self.interruption)
        return outcome

    def _tell(self, news: dict[str, Any]) -> None:
        self.news = news
        self.report(self)


def classify(error: Exception) -> Failed:
    """Say what an exception of a handler means. The only place that does."""
    message = readable(str(error))
    match error:
        case Throttled(retry_after=float() | int() as seconds):
            wait = timedelta(seconds=min(max(0.0, seconds), LONGEST_WAIT))
            return Failed(error.problem_code, message, True, wait)
        case PermanentError():
            return Failed(error.problem_code, message, retryable=False)
        case WorkError():
            return Failed(error.problem_code, message, retryable=error.retryable)
        case TimeoutError():
            return Failed(TIMEOUT, message or "it took too long")
        case _:
            return Failed("UNEXPECTED", f"{type(error).__name__}: {message}")


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


def _unknown(name: str) -> Failed:
    # Retried: during a roll-out another worker may know it.
    return Failed("UNKNOWN_CAPABILITY", f"no worker here knows capability {name!r}")


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
