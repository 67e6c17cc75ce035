"""
What a job waits for without holding a slot, and how a wait is decided.

A wait for time makes the job `scheduled`; a wait for somebody else makes it `waiting`.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant, Owner, Wait, WaitReason

MAX_SIGNAL_NAME: Final = 200
MAX_SIGNAL_BYTES: Final = 64 * 1024
"""How large the body of a signal may be."""
MAX_SIGNALS: Final = 1_000
"""How many signals are stored for one job."""
CHILD: Final = "job/"
"""Before the id of a child, the name of the wait for it; no caller may use it."""


class Suspended(BaseException):
    """
    Ends a run whose job waits.

    It is no `Exception`, so that a handler does not catch it together with errors.
    """

    def __init__(self, wait: Wait) -> None:
        super().__init__(f"the job waits: {wait.reason}")
        self.wait = wait


def suspended_by(error: BaseException) -> Suspended | None:
    """Return what suspends a run, also if it comes in a group of exceptions."""
    if isinstance(error, Suspended):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = [suspended_by(inner) for inner in error.exceptions]
        is_clean = all(one is not None for one in found)
        return found[0] if is_clean else None
    return None


class WaitOutcome(StrEnum):
    """How a wait was decided; the first decision stays."""

    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"


class NewWait(NamedTuple):
    """A wait that a running handler has come to."""

    name: str
    kind: WaitReason
    timeout: int | None = None
    """After how many milliseconds it times out; the first run decides."""
    question: str | None = None
    """What people are asked, as JSON."""


class StoredWait(NamedTuple):
    """A wait of a job as it is stored; also a signal that came before its wait."""

    name: str
    kind: WaitReason
    until: Instant | None
    outcome: WaitOutcome | None
    """`None`: it is not decided."""
    value: str | None
    """What the signal brought, as JSON."""


class WaitRecord(NamedTuple):
    """A wait or an early signal of a job, as operators see it."""

    name: str
    kind: WaitReason
    generation: int
    asked_at: Instant | None
    """When the handler came to it; `None`: a signal that no wait has asked for."""
    until: Instant | None
    outcome: WaitOutcome | None
    decided_at: Instant | None
    size: int
    """Characters of the value."""
    value: str | None
    """JSON, unless it is too large to be shown."""


class Signal(NamedTuple):
    """What somebody tells a job."""

    name: str
    value: str
    """JSON."""
    is_answer: bool = False
    """Whether it answers a question, which must be open."""


class SignalAnswer(StrEnum):
    """What became of a signal."""

    STORED = "stored"
    """It is stored; a job that waits starts at once."""
    REPEATED = "repeated"
    """The same signal was there before."""
    DIFFERS = "differs"
    """Another value was there before."""
    TOO_LATE = "too_late"
    """The wait had timed out."""
    FINISHED = "finished"
    """The job has ended, or is gone."""
    TOO_MANY = "too_many"
    """The job has as many signals as it may have."""
    UNASKED = "unasked"
    """No question of this name is open."""


class Signalled(NamedTuple):
    """What became of a signal, and whether it queued its job."""

    answer: SignalAnswer
    is_woken: bool = False


class Question(NamedTuple):
    """A question to people that nobody has answered."""

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
    found: Iterable[tuple[int, StoredWait]], generation: int
) -> StoredWait | None:
    """
    Return the wait of a name that a run sees, of those of all generations.

    A signal of an earlier generation is kept, as results of steps are; a time-out or
    an open wait is not: a retry waits anew.
    """
    newest = sorted(found, key=lambda pair: -pair[0])
    for of, wait in newest:
        if of == generation or wait.outcome is WaitOutcome.SIGNALLED:
            return wait
    return None


def answer_to(first: StoredWait, value: str) -> SignalAnswer:
    """Say what a signal for a wait comes to that was decided before."""
    if first.outcome is WaitOutcome.TIMED_OUT:
        return SignalAnswer.TOO_LATE
    is_same = first.value == value
    return SignalAnswer.REPEATED if is_same else SignalAnswer.DIFFERS
