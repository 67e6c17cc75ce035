"""What one application brings to the house."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backburner.engine.registry import Capability


@dataclass(frozen=True, slots=True)
class App:
    """A named set of capabilities."""

    name: str
    capabilities: Sequence[Capability[Any, Any]] = ()
