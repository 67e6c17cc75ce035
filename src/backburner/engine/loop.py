"""Background loops that are repeated and supervised until they are stopped."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from backburner.engine.seldom import Seldom
from backburner.ports.log import log

RESTART_SECONDS = 0.5


async def supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run background work until it returns; log exceptions and restart it."""
    while True:
        try:
            return await work()
        except Exception as error:  # noqa: BLE001 - work that ends is a silent fault
            log.error("task failed", loop=name, error_type=type(error).__name__)
        await asyncio.sleep(RESTART_SECONDS)  # noqa: TID251 - back-off


class Loop:
    """Calls `action` periodically, sooner when poked, and survives its failures."""

    def __init__(
        self,
        name: str,
        action: Callable[[], Awaitable[float | None]],
        *,
        every: float,
        after: float = 0.0,
    ) -> None:
        """
        Create a loop; `action` may return the seconds until its next call.

        The first call comes after `after` seconds.
        """
        self._name = name
        self._action = action
        self._every = every
        self._after = after
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._seldom = Seldom()

    def start(self) -> None:
        """Start; without `after`, the first call comes at once."""
        self._is_stopping = False
        self._task = asyncio.create_task(
            supervised(self._name, self._run), name=self._name
        )

    def poke(self) -> None:
        """Call the action soon."""
        self._poked.set()

    async def stop(self) -> None:
        """
        Stop, also in the middle of the action.

        The action may swallow its cancellation: `asyncio.wait_for` of Python 3.11 does
        so if the awaited task completes at that moment.
        """
        if self._task is not None:
            self._is_stopping = True
            self._task.cancel()
            await asyncio.wait({self._task})
            task, self._task = self._task, None
            if not task.cancelled():
                task.result()

    async def _run(self) -> None:
        if self._after:
            await self._rest(self._after)
        while True:
            self._poked.clear()
            pause = await self._once()
            if self._is_stopping:
                return
            await self._rest(pause)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poked.wait()

    async def _once(self) -> float:
        try:
            delay = await self._action()
        except Exception as error:  # noqa: BLE001 - a loop that dies is a silent fault
            kind = type(error).__name__
            self._seldom.write(
                log.error, "loop failed", loop=self._name, error_type=kind
            )
            return self._every
        return self._every if delay is None else min(delay, self._every)
