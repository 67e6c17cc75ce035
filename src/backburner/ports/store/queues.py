"""Policies and limits of queues."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from backburner.domain.queues.queue import Queue, QueueState, Throttling, Totals


class QueueStore(Protocol):
    """Limits, pauses and totals of queues."""

    async def declare(self, queues: Sequence[Queue]) -> None:
        """Store the policies of queues, replacing earlier ones; pauses stay."""
        ...

    async def pause(self, queue: str, *, paused: bool) -> None:
        """Pause or resume claims from a queue; running jobs continue."""
        ...

    async def queues(self) -> Sequence[QueueState]:
        """Return the queues that have a policy or were paused, by name."""
        ...

    async def totals(self) -> Mapping[str, Totals]:
        """Return how many jobs of each queue have ended, including deleted ones."""
        ...

    async def compact_totals(self, *, limit: int) -> int:
        """Replace rows of the totals by their sums; return how many fewer there are."""
        ...

    async def throttlings(self) -> Sequence[Throttling]:
        """Return rate limits that were reached while jobs waited, each once."""
        ...
