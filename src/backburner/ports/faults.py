"""Named places where a simulation may crash a process. No-ops in production."""

from typing import Protocol


class Faults(Protocol):
    """Is told that execution passed a named place."""

    def hit(self, name: str) -> None:
        """Do nothing, or end this process here."""
        ...


class NoFaults:
    """Lets everything pass."""

    def hit(self, name: str) -> None:
        """Let it pass."""
