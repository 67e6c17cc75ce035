"""
Timeouts of attempts, with one timer for all of them.

The deadlines are in a heap, and the event loop has one timer, for the first of them. An
item that is discarded leaves its entry in the heap; the heap is rebuilt when it has too
many of those.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T", bound=Hashable)

MOST_STALE: Final = 64
"""The heap is rebuilt when it exceeds twice the number of items by this many."""

Place: TypeAlias = list[Any]
"""The deadline, a number that makes equal times distinct, and the item or `None`."""
ITEM: Final = 2


class Timeouts(Generic[T]):
    """Calls `expired` for each item that is not discarded in time."""

    def __init__(self, expired: Callable[[T], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._numbers = count()
        self._place: dict[T, Place] = {}
        self._heap: list[Place] = []
        """The entries by deadline, including those of discarded items."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, item: T, seconds: float) -> None:
        """Start an item's timeout."""
        at = self._loop.time() + seconds
        place = self._place[item] = [at, next(self._numbers), item]
        heapq.heappush(self._heap, place)
        if self._timer is None or at < self._timer.when():
            self._wake_at(at)

    def discard(self, item: T) -> None:
        """End an item's timeout, if it has not expired yet."""
        place = self._place.pop(item, None)
        if place is None:
            return
        place[ITEM] = None
        if len(self._heap) > 2 * len(self._place) + MOST_STALE:
            self._heap = [place for place in self._heap if place[ITEM] is not None]
            heapq.heapify(self._heap)

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer, now = None, self._loop.time()
        due: list[T] = []
        while self._heap:
            at, _, item = self._heap[0]
            if item is not None:
                if at > now:
                    self._wake_at(at)
                    break
                del self._place[item]
                due.append(item)
            heapq.heappop(self._heap)
        for item in due:
            self._expired(item)
