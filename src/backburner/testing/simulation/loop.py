"""
An event loop that controls time and order, both by a seed.

A lane is one process, or one thread of it: its callbacks run in order, as on a real
loop, but the next lane is drawn at random. Time advances only when no lane can run. A
lane can be held, as by SIGSTOP, and killed, as by SIGKILL.
"""

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MANY = 100_000
"""After this many steps without an advance of time, the simulation is in a livelock."""


class Livelock(Exception):
    """A lane keeps running without an advance of time."""


class Deadlock(Exception):
    """No lane can run and no timer is set."""


class Lane:
    """The pending callbacks of one process, or of one thread of it."""

    __slots__ = ("is_dead", "is_held", "name", "steps")

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: deque[asyncio.Handle] = deque()
        self.is_held = False
        self.is_dead = False

    def kill(self) -> None:
        """Never run another callback."""
        self.is_dead = True
        self.steps.clear()


LANE: contextvars.ContextVar[Lane] = contextvars.ContextVar("LANE")


class SeededLoop(asyncio.BaseEventLoop):
    """Runs lanes in virtual time; the same seed gives the same run."""

    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.steps = 0
        self.tasks: list[asyncio.Task[Any]] = []
        """
        All tasks, so that none is garbage-collected, and closed, at a random time.
        """
        self.failures: list[BaseException] = []
        """Exceptions that callbacks raised."""
        self._chance = chance
        self._now = 0.0
        self._still = 0
        self._outside = Lane("outside")
        self._lanes: list[Lane] = [self._outside]
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._now

    def add(self, lane: Lane) -> contextvars.Context:
        """Add a lane; return the context whose callbacks it runs."""
        self._lanes = [known for known in self._lanes if not known.is_dead]
        self._lanes.append(lane)
        context = contextvars.copy_context()
        context.run(LANE.set, lane)
        return context

    def close(self) -> None:
        """Close every task in the order of creation."""
        for lane in self._lanes:
            lane.kill()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            coroutine = task.get_coro()
            if not task.done() and coroutine is not None:
                # A task that would clean up first has no running loop any more.
                with suppress(RuntimeError):
                    coroutine.close()
        self.tasks.clear()
        self._scheduled.clear()
        super().close()

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        self.tasks.append(task)
        return task

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "exception" in context:
            self.failures.append(context["exception"])

    def _call_soon(
        self,
        callback: Callable[..., object],
        args: Any,
        context: contextvars.Context | None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._take(handle)
        return handle

    def _take(self, handle: asyncio.Handle) -> None:
        lane = handle._context.get(LANE, self._outside)  # type: ignore[attr-defined]  # noqa: SLF001
        if not lane.is_dead:
            lane.steps.append(handle)

    def _run_once(self) -> None:
        able = [lane for lane in self._lanes if lane.steps and not lane.is_held]
        if not able:
            self._pass_time()
            return
        self.steps += 1
        self._still += 1
        if self._still > MANY:
            raise Livelock(able[0].name)
        lane = able[int(self._chance.random() * len(able))]
        handle = lane.steps.popleft()
        if not handle.cancelled():
            handle._run()  # noqa: SLF001

    def _pass_time(self) -> None:
        """Advance to the next timer."""
        planned = self._scheduled
        while planned and planned[0].cancelled():
            heapq.heappop(planned)
        if not planned:
            raise Deadlock
        self._now = max(self._now, planned[0].when())
        self._still = 0
        while planned and planned[0].when() <= self._now:
            handle = heapq.heappop(planned)
            if not handle.cancelled():
                self._take(handle)

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Do nothing: a run must not depend on the garbage collector."""

    def _write_to_self(self) -> None:
        """Do nothing: no thread waits in a selector."""
