"""Policies and limits of queues."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from backburner.domain.queues.queue import Queue, QueueState, Throttling, Totals


class QueueStore(Protocol):
    """What each queue allows."""

    async def declare(self, queues: Sequence[Queue]) -> None:
        """Store policies in place of those these queues had; pauses stay."""
        ...

    async def pause(self, queue: str, *, paused: bool) -> None:
        """Have nothing of a queue claimed, or let it go on; what runs goes on."""
        ...

    async def queues(self) -> Sequence[QueueState]:
        """Return the queues that have a policy or were paused, by name."""
        ...

    async def totals(self) -> Mapping[str, Totals]:
        """Return how often jobs of each queue ended, also of deleted ones."""
        ...

    async def compact_totals(self, *, limit: int) -> int:
        """Replace rows of the totals by their sums; return how many fewer there are."""
        ...

    async def throttlings(self) -> Sequence[Throttling]:
        """Return windows that closed while jobs waited; each is told to one caller."""
        ...
