"""Outcomes of an attempt. A handler returns its result or one of these values."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from backburner.domain.jobs.job import Instant, Wait


class Done(NamedTuple):
    """The handler succeeded; `output` is JSON text."""

    output: str


class Snooze(NamedTuple):
    """Run the job again after `delay`, without using up an attempt."""

    delay: timedelta
    reason: str = "snoozed by its handler"


class Cancel(NamedTuple):
    """End the job as cancelled: its work is no longer needed."""

    reason: str


class Trace(NamedTuple):
    """The origin of an exception."""

    text: str
    """The stack trace, without messages and values."""
    place: str
    """File and line."""


class Failed(NamedTuple):
    """The attempt failed; `retryable` says whether a retry may succeed."""

    code: str
    message: str
    retryable: bool = True
    retry_after: timedelta | None = None
    """The wait that a provider demanded; such a wait uses up no attempt."""
    lane: str | None = None
    """The provider lane that is full or parked."""
    is_paid: bool = False
    """Whether the run has paid for a model call; then it uses up an attempt."""
    trace: Trace | None = None
    """The origin of the exception that it failed with."""


class HandedBack(NamedTuple):
    """The worker stops before the job is done: another one can start it at once."""


class Expired(NamedTuple):
    """The job's deadline passed while it ran."""


class Suspension(NamedTuple):
    """The handler waits: the run ends without a result and uses up no attempt."""

    wait: Wait
    names: Sequence[str] = ()
    """The job runs again at once if one of these waits was signalled meanwhile."""
    wake_at: Instant | None = None
    """When the first of all its waits is over, if that is before `wait.until`."""
    questions: Sequence[str] = ()
    """The names of its waits that are open questions."""


Outcome: TypeAlias = Done | Snooze | Cancel | Failed | HandedBack | Expired | Suspension
Answer: TypeAlias = Snooze | Cancel | Failed
"""What a handler may return besides its result."""
