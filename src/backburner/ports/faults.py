"""Named places where a simulation may crash a process. No-ops in production."""

from typing import Protocol


class Faults(Protocol):
    """Receives the names of failpoints that execution passes."""

    def hit(self, name: str) -> None:
        """Do nothing, or end the process here."""
        ...


class NoFaults:
    """Ignores all failpoints."""

    def hit(self, name: str) -> None:
        """Do nothing."""
