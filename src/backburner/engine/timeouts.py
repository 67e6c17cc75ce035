"""
Timers for attempts: one for each length of time, not one for each attempt.

Attempts that may take equally long end in the order they began, so only the first of
each length needs a timer. Beginning and ending one is a dictionary's insert and delete.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Timeouts(Generic[T]):
    """Calls back for what was not discarded in its time."""

    def __init__(self, expired: Callable[[T], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._due: dict[float, dict[T, float]] = {}

    def add(self, item: T, seconds: float) -> None:
        """Begin an item's time."""
        due = self._due.get(seconds)
        if due is None:
            due = self._due[seconds] = {}
            self._loop.call_later(seconds, self._look, seconds)
        due[item] = self._loop.time() + seconds

    def discard(self, item: T, seconds: float) -> None:
        """End an item's time; it may have ended before."""
        due = self._due.get(seconds)
        if due is not None:
            due.pop(item, None)

    def _look(self, seconds: float) -> None:
        due, now = self._due[seconds], self._loop.time()
        for item, at in tuple(due.items()):
            if at > now:
                self._loop.call_at(at, self._look, seconds)
                return
            del due[item]
            self._expired(item)
        del self._due[seconds]
