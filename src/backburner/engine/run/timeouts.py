"""
Timers for attempts: one for all of them.

What is due is kept in a heap, and the event loop has one timer, for the first of it.
An item that ends in its time leaves its place in the heap behind; when there are more
of those than items, the heap is built anew.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T", bound=Hashable)

MOST_STALE: Final = 64
"""How many more places than items the heap may have besides as many again."""

Place: TypeAlias = list[Any]
"""When an item is due, a number to tell equal times apart, and the item or `None`."""
ITEM: Final = 2


class Timeouts(Generic[T]):
    """Calls back for what was not discarded in its time."""

    def __init__(self, expired: Callable[[T], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._numbers = count()
        self._place: dict[T, Place] = {}
        self._heap: list[Place] = []
        """By when they are due; also the places of items that were discarded."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, item: T, seconds: float) -> None:
        """Begin an item's time."""
        at = self._loop.time() + seconds
        place = self._place[item] = [at, next(self._numbers), item]
        heapq.heappush(self._heap, place)
        if self._timer is None or at < self._timer.when():
            self._wake_at(at)

    def discard(self, item: T) -> None:
        """End an item's time; it may have ended before."""
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
