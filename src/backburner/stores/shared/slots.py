"""Divides the slots of a claim: those that a queue leaves unused go to the others."""

from collections.abc import Iterator

from backburner.ports.store.jobs import ClaimRequest


class UnusedSlots:
    """Slots of one claim that the queues asked so far have left unused."""

    def __init__(self) -> None:
        self._count = 0
        self._full: list[tuple[str, int]] = []
        """
        Queues that returned all requested jobs, and how many more they may return.
        """

    def limit_of(self, request: ClaimRequest) -> int:
        """Return how many jobs to take from a queue: its limit plus unused slots."""
        return request.limit + min(self._count, request.extra)

    def took(self, request: ClaimRequest, wanted: int, taken: int) -> None:
        """Record how many of the wanted jobs a queue returned."""
        self._count += request.limit - taken
        if taken == wanted:
            self._full.append((request.queue, request.limit + request.extra - wanted))

    def left(self) -> Iterator[tuple[str, int]]:
        """Yield the queues that may have more jobs, and how many to take from each."""
        for queue, extra in self._full:
            if count := min(self._count, extra):
                yield queue, count

    def took_more(self, taken: int) -> None:
        """Record how many jobs a queue from `left` returned."""
        self._count -= taken
