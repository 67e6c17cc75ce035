"""What one application brings to the house."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backburner.domain.budget import Budget
from backburner.domain.lane import Lane
from backburner.domain.queue import Queue
from backburner.engine.registry import Capability
from backburner.engine.schedule import Schedule


@dataclass(frozen=True, slots=True)
class App:
    """A named set of capabilities, with their limits, lanes, schedules and budgets."""

    name: str
    capabilities: Sequence[Capability[Any, Any]] = ()
    queues: Sequence[Queue] = ()
    schedules: Sequence[Schedule] = ()
    budgets: Sequence[Budget] = ()
    lanes: Sequence[Lane] = ()
