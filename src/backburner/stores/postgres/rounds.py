"""One answer for all who ask at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Rounds(Generic[T]):
    """
    Runs an action for all callers that wait together, never twice at once.

    A caller gets the answer of a round that began after its call: what it knows to
    have happened is in it.
    """

    def __init__(self, action: Callable[[], Awaitable[T]]) -> None:
        self._action = action
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def join(self) -> T:
        """Wait for the next round and return its answer, or raise its failure."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
        # A caller that gives up must not end the round of the others.
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """End the rounds that are under way."""
        tasks = {task for task in (self._running, self._next) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, before: "asyncio.Task[T] | None") -> T:
        if before is not None and not before.done():
            await asyncio.wait({before})
        self._running, self._next = self._next, None
        return await self._action()
