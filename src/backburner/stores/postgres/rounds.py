"""Shares one result among concurrent callers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Rounds(Generic[T]):
    """
    Runs an action once for all callers that wait together, never concurrently.

    A caller gets the result of a run that began after its call, so the result includes
    everything that happened before.
    """

    def __init__(self, action: Callable[[], Awaitable[T]]) -> None:
        self._action = action
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def join(self) -> T:
        """Wait for the next run and return its result, or raise its error."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
        # A cancelled caller must not end the run for the others.
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancel pending runs."""
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
