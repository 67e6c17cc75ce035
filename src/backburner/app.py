"""What one application brings to the house."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from backburner.domain.budget import Budget
from backburner.domain.lane import Lane
from backburner.domain.queue import Queue
from backburner.engine.registry import Capability
from backburner.engine.schedule import Schedule

Serves = Callable[[Any], AbstractAsyncContextManager[Sequence[Any]]]
"""Takes the open `Backburner` and gives routes, for as long as they are served."""


@dataclass(frozen=True, slots=True)
class App:
    """
    A named set of capabilities, with their limits, lanes, schedules and budgets.

    One with routes is a service: `backburner serve` has all of them, `backburner serve
    NAME` that one.
    """

    name: str
    capabilities: Sequence[Capability[Any, Any]] = ()
    queues: Sequence[Queue] = ()
    schedules: Sequence[Schedule] = ()
    budgets: Sequence[Budget] = ()
    lanes: Sequence[Lane] = ()
    serves: Serves | None = None
    own: Sequence[Capability[Any, Any]] = ()
    """Capabilities that its code asks for and nobody else can, by whatever door."""
