"""Outcomes of an attempt. A handler returns its result or one of these values."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from backburner.domain.jobs.job import Wait


class Done(NamedTuple):
    """The work is done; `output` is JSON text."""

    output: str


class Snooze(NamedTuple):
    """Not now: run me again after `delay`, at no cost of an attempt."""

    delay: timedelta
    reason: str = "snoozed by its handler"


class Cancel(NamedTuple):
    """The work has become pointless; end as cancelled."""

    reason: str


class Trace(NamedTuple):
    """Where an exception came from."""

    text: str
    """The stack, without messages and values."""
    place: str
    """File and line."""


class Failed(NamedTuple):
    """It did not work, and whether another attempt could."""

    code: str
    message: str
    retryable: bool = True
    retry_after: timedelta | None = None
    """How long the other side asked us to wait; such a wait costs no attempt."""
    lane: str | None = None
    """The lane to a provider that is full or parked."""
    is_paid: bool = False
    """Whether the attempt has paid for a model call: then it is not free of charge."""
    trace: Trace | None = None
    """Where the exception came from that it failed with."""


class HandedBack(NamedTuple):
    """The worker stops before the work is done: somebody else may start at once."""


class Expired(NamedTuple):
    """The job's own deadline came while it ran."""


class Suspension(NamedTuple):
    """The handler waits: the run ends without a result and costs no attempt."""

    wait: Wait
    names: Sequence[str] = ()
    """The waits that a signal must not have decided meanwhile, or it runs again."""


Outcome: TypeAlias = Done | Snooze | Cancel | Failed | HandedBack | Expired | Suspension
Answer: TypeAlias = Snooze | Cancel | Failed
"""What a handler may return besides its result."""
