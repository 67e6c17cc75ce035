"""
Waits of a job that hold no slot, and how they are decided.

A wait for a time makes the job `scheduled`; any other wait makes it `waiting`.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant, Owner, Wait, WaitReason

MAX_SIGNAL_NAME: Final = 200
MAX_SIGNAL_BYTES: Final = 64 * 1024
"""The maximum size of a signal's value, in bytes."""
MAX_SIGNALS: Final = 1_000
"""How many signals are stored for one job."""
CHILD: Final = "job/"
"""The prefix of the name of a wait for a child; signals from callers cannot use it."""


def child_wait(child: str, generation: int) -> str:
    """Return the name of a wait for the end of a child; each retry has another end."""
    return f"{CHILD}{child}#{generation}" if generation else f"{CHILD}{child}"


class Suspended(BaseException):
    """
    Raised to end the run of a job that waits.

    It is not an `Exception`, so that handlers that catch errors do not catch it.
    """

    def __init__(self, wait: Wait) -> None:
        super().__init__(f"the job waits: {wait.reason}")
        self.wait = wait


def suspended_by(error: BaseException) -> Suspended | None:
    """Return the suspension that an error or a group of errors consists of."""
    if isinstance(error, Suspended):
        return error
    if isinstance(error, BaseExceptionGroup):
        suspensions = [suspended_by(inner) for inner in error.exceptions]
        is_clean = all(one is not None for one in suspensions)
        return suspensions[0] if is_clean else None
    return None


class WaitOutcome(StrEnum):
    """How a wait was decided; the first decision is final."""

    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"


class NewWait(NamedTuple):
    """A wait that a running handler has reached."""

    name: str
    kind: WaitReason
    timeout: int | None = None
    """The timeout in milliseconds; that of the first run applies."""
    question: str | None = None
    """The question to people, as JSON."""


class StoredWait(NamedTuple):
    """A stored wait of a job, or a signal that came before its wait."""

    name: str
    kind: WaitReason
    until: Instant | None
    outcome: WaitOutcome | None
    """`None` if it is not decided yet."""
    value: str | None
    """The value of the signal, as JSON."""


class WaitRecord(NamedTuple):
    """A wait or an early signal of a job, as shown to operators."""

    name: str
    kind: WaitReason
    generation: int
    asked_at: Instant | None
    """When the handler reached it; `None` for an early signal."""
    until: Instant | None
    outcome: WaitOutcome | None
    decided_at: Instant | None
    size: int
    """The length of the value in characters."""
    value: str | None
    """JSON; `None` if there is none or it is too large to be shown."""


class Signal(NamedTuple):
    """A named value that is sent to a job."""

    name: str
    value: str
    """JSON."""
    is_answer: bool = False
    """Whether it answers a question, which must be open."""


class SignalAnswer(StrEnum):
    """The result of sending a signal."""

    STORED = "stored"
    """It is stored; a waiting job is queued at once."""
    REPEATED = "repeated"
    """The same signal had been sent before."""
    DIFFERS = "differs"
    """Another value had been sent before."""
    TOO_LATE = "too_late"
    """The wait had timed out."""
    FINISHED = "finished"
    """The job has ended, or does not exist any more."""
    TOO_MANY = "too_many"
    """The job has the maximum number of signals."""
    UNASKED = "unasked"
    """No question of this name is open."""
    QUESTION = "question"
    """The job asks a question of this name, which takes answers only."""


class Signalled(NamedTuple):
    """The result of a signal, and whether it queued its job."""

    answer: SignalAnswer
    is_woken: bool = False


class Question(NamedTuple):
    """A question to people that has not been answered."""

    seq: int
    job: str
    name: str
    owner: Owner
    capability: str
    asked_at: Instant
    until: Instant | None
    question: str
    """JSON: the text, the choices and the schema of an answer."""


def visible_wait(
    waits: Iterable[tuple[int, StoredWait]], generation: int
) -> StoredWait | None:
    """
    Return the wait of one name that applies to a run.

    Signals of earlier generations still apply, as results of steps do. Their time-outs
    and open waits do not: a retried job waits again.
    """
    newest = sorted(waits, key=lambda pair: -pair[0])
    for of, wait in newest:
        if of == generation or wait.outcome is WaitOutcome.SIGNALLED:
            return wait
    return None


def answer_to(first: StoredWait, value: str) -> SignalAnswer:
    """Return the result of a signal for a wait that was already decided."""
    if first.outcome is WaitOutcome.TIMED_OUT:
        return SignalAnswer.TOO_LATE
    is_same = first.value == value
    return SignalAnswer.REPEATED if is_same else SignalAnswer.DIFFERS
