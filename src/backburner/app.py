"""What one application brings to the house."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backburner.domain.queue import Queue
from backburner.engine.registry import Capability
from backburner.engine.schedule import Schedule


@dataclass(frozen=True, slots=True)
class App:
    """A named set of capabilities, with limits on their queues and their schedules."""

    name: str
    capabilities: Sequence[Capability[Any, Any]] = ()
    queues: Sequence[Queue] = ()
    schedules: Sequence[Schedule] = ()
