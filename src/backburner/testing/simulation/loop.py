"""
An event loop that owns the time and the order, both from a seed.

A lane is one process, or one thread of it: what it has to do is done in order, as on a
real loop, while which lane goes next is drawn by lot. Time passes only when no lane
can go on. A lane can be held, as by SIGSTOP, and killed, as by SIGKILL.
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
"""So many steps while no time passes are a loop that never rests."""


class Livelock(Exception):
    """Somebody is busy for ever."""


class Deadlock(Exception):
    """Nobody has anything to wait for."""


class Lane:
    """The steps that one process, or one thread of it, has before it."""

    __slots__ = ("is_dead", "is_held", "name", "steps")

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: deque[asyncio.Handle] = deque()
        self.is_held = False
        self.is_dead = False

    def kill(self) -> None:
        """Never take another step."""
        self.is_dead = True
        self.steps.clear()


LANE: contextvars.ContextVar[Lane] = contextvars.ContextVar("LANE")


class SeededLoop(asyncio.BaseEventLoop):
    """Runs lanes under virtual time; the same seed gives the same run."""

    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.steps = 0
        self.tasks: list[asyncio.Task[Any]] = []
        """Every task there was: none may be collected, and closed, at a random time."""
        self.failures: list[BaseException] = []
        """What escaped from callbacks."""
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
        """Take up a lane; return the context whose steps it takes."""
        self._lanes = [known for known in self._lanes if not known.is_dead]
        self._lanes.append(lane)
        context = contextvars.copy_context()
        context.run(LANE.set, lane)
        return context

    def close(self) -> None:
        """End every task where it stands, in the order in which they began."""
        for lane in self._lanes:
            lane.kill()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            coroutine = task.get_coro()
            if not task.done() and coroutine is not None:
                # One that would clean up first has nobody left to do it with.
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
        """Go to the next instant for which anything is planned."""
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
        """Leave it: nothing may happen because the collector came by."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""
