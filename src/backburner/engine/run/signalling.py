"""Checks and stores signals to jobs, and queues jobs that waited for them."""

from typing import Any, Protocol

import orjson
from pydantic_core import PydanticSerializationError, to_json

from backburner.domain.errors import (
    FieldError,
    InvalidInput,
    SignalConflict,
    SignalTooLarge,
)
from backburner.domain.jobs.job import Job
from backburner.domain.jobs.wait import (
    CHILD,
    MAX_SIGNAL_BYTES,
    MAX_SIGNAL_NAME,
    MAX_SIGNALS,
    Question,
    Signal,
    SignalAnswer,
)
from backburner.ports.store.waits import WaitStore


class Signals(Protocol):
    """The signal store, and the notification of woken jobs."""

    @property
    def store(self) -> WaitStore:
        """The store of waits and signals."""
        ...

    def woken(self, job: Job) -> None:
        """Notify workers that a job was queued."""
        ...


async def deliver(
    signals: Signals, job: Job, name: str, value: Any, *, is_answer: bool = False
) -> bool:
    """Store a signal; return whether it is new. Raises `SignalConflict` if refused."""
    signal = _signal(name, value, is_answer=is_answer)
    result = await signals.store.signal(job.seq, signal)
    if result.is_woken:
        signals.woken(job)
    if result.answer in _REFUSED:
        raise SignalConflict(_REFUSED[result.answer].format(name=name, job=job.id))
    return result.answer is SignalAnswer.STORED


def check_answer(name: str, value: Any, asked: Question | None) -> None:
    """Raise if an answer cannot be taken, for example because it is not a choice."""
    _signal(name, value, is_answer=True)
    choices = None if asked is None else orjson.loads(asked.question).get("choices")
    if choices is not None and value not in choices:
        listed = ", ".join(choices)
        message = f"the answer must be one of these: {listed}"
        raise InvalidInput(message, [FieldError("body", message)])


def _signal(name: str, value: Any, *, is_answer: bool) -> Signal:
    """Return a signal or an answer; raise if it has a wrong name or is too large."""
    _check_name(name)
    signal = Signal(name, canonical(value), is_answer)
    size = len(signal.value.encode())
    if size > MAX_SIGNAL_BYTES:
        raise SignalTooLarge(
            f"a signal can have at most {MAX_SIGNAL_BYTES} bytes; this has {size}"
        )
    return signal


def canonical(value: Any) -> str:
    """Return a value as canonical JSON: equal values give equal text."""
    try:
        plain = orjson.loads(to_json(value, by_alias=True))
        return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS).decode()
    except (PydanticSerializationError, orjson.JSONDecodeError, ValueError):
        raise InvalidInput("the signal's value cannot be written as JSON") from None


def _check_name(name: str) -> None:
    is_good = 0 < len(name) <= MAX_SIGNAL_NAME and name.isprintable()
    if not is_good or name.startswith(CHILD):
        message = (
            f"a signal's name has 1 to {MAX_SIGNAL_NAME} printable characters and "
            f"does not begin with {CHILD!r}"
        )
        raise InvalidInput(message, [FieldError("path.name", message)])


_REFUSED = {
    SignalAnswer.DIFFERS: "signal {name!r} of job {job} has another value already",
    SignalAnswer.TOO_LATE: "the wait for {name!r} of job {job} has timed out",
    SignalAnswer.FINISHED: "job {job} has ended: it takes no signals",
    SignalAnswer.TOO_MANY: f"job {{job}} has {MAX_SIGNALS} signals, the maximum",
    SignalAnswer.QUESTION: "{name!r} is a question of job {job}: send an answer",
    SignalAnswer.UNASKED: "job {job} has no open question {name!r}",
}
