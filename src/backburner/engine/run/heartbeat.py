"""
Renews a worker's lease from a separate thread.

A handler that blocks the event loop for a while must not cost the worker its jobs, so
the thread does not need the loop. A handler that blocks it for ever must not keep the
jobs: if the loop has not run for a given time, the lease is no longer renewed.

The thread writes no line of the log itself, because the log may be what blocks the
loop: a pipe whose reader stalls. A second thread writes the lines, and may stall.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from backburner.domain.errors import StoreUnavailable
from backburner.ports.clock import Clock
from backburner.ports.log import log
from backburner.ports.store.workers import Heart, Vitals

LOOK_SECONDS = 0.5
"""How often to look, at least, whether the event loop is blocked."""
LAST_SECONDS = 5.0
"""How long to wait for the last heartbeat."""
MOST_LINES = 20
"""How many lines of the log are kept while they cannot be written: the newest."""


class Heartbeat(Protocol):
    """Renews a lease until it is stopped."""

    def start(self, worker: str) -> None:
        """Send heartbeats for this worker from now on."""
        ...

    async def stop(self) -> None:
        """Stop; return when the last heartbeat has ended."""
        ...


class Pulse:
    """Sends one heartbeat and evaluates its result; does not decide when."""

    def __init__(
        self,
        heart: Heart,
        clock: Clock,
        *,
        lease_ms: int,
        lost: Callable[[str], None],
        vitals: Callable[[], Vitals],
        blocked_ms: float = math.inf,
    ) -> None:
        """
        Stop beating if the event loop was blocked for longer than `blocked_ms`.

        `vitals` is called by the thread that sends the heartbeats.
        """
        self._heart = heart
        self._clock = clock
        self._lease_ms = lease_ms
        self._lost = lost
        self._vitals = vitals
        self._worker = ""
        self._last = 0
        self._blocked_ms = blocked_ms
        self._ticked = clock.monotonic()
        self._was_blocked = False
        self._lines: deque[Callable[[], object]] = deque(maxlen=MOST_LINES)

    def begin(self, worker: str) -> None:
        """Start with a new worker id, whose lease has just begun."""
        self._worker = worker
        self._last = self._clock.monotonic()

    def tick(self) -> None:
        """Record that the event loop runs."""
        self._ticked = self._clock.monotonic()

    def beat(self) -> None:
        """Renew the lease; call `lost` if it is lost or was not renewed in time."""
        if self._is_blocked():
            return
        worker, now = self._worker, self._clock.monotonic()
        try:
            alive = self._heart.beat(worker, self._vitals())
        except StoreUnavailable as error:
            self._note(log.warning, "heartbeat failed", worker=worker, code=error.code)
            # Use the time now, not when the call began: it may hang before it fails.
            alive = self._clock.monotonic() - self._last < self._lease_ms
        except Exception as error:  # noqa: BLE001 - without beats the worker is lost
            kind = type(error).__name__
            self._note(log.error, "heartbeat failed", worker=worker, error_type=kind)
            alive = self._clock.monotonic() - self._last < self._lease_ms
        else:
            self._last = now
        if not alive and worker == self._worker:
            self._lost(worker)

    def _is_blocked(self) -> bool:
        """Say whether the event loop has been blocked for too long; log it once."""
        is_blocked = self._clock.monotonic() - self._ticked > self._blocked_ms
        if is_blocked and not self._was_blocked:
            self._note(log.error, "event loop blocked", worker=self._worker)
        self._was_blocked = is_blocked
        return is_blocked

    def _note(self, write: Callable[..., object], event: str, **fields: str) -> None:
        self._lines.append(partial(write, event, **fields))

    def write_lines(self) -> None:
        """Write what there is to log; to be called by a thread that may stall."""
        while self._lines:
            self._lines.popleft()()

    def close(self) -> None:
        """Close the heart's connection."""
        self._heart.close()


class ThreadHeartbeat:
    """A thread that sends heartbeats periodically, and one that writes to the log."""

    def __init__(
        self, pulse: Pulse, *, every: float, look: Callable[[], None] = lambda: None
    ) -> None:
        """
        Send a heartbeat `every` so many seconds.

        `look` is called by the second thread; it may write to the log.
        """
        self._pulse = pulse
        self._every = every
        self._look = look
        self._ticking: asyncio.TimerHandle | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, worker: str) -> None:
        self._pulse.begin(worker)
        if self._ticking is None:
            self._tick(asyncio.get_running_loop())
        if self._thread is None:
            self._thread = _started(self._beat, "backburner-heartbeat")
            _started(self._write, "backburner-heartbeat-log")

    async def stop(self) -> None:
        self._stopping.set()
        if self._ticking is not None:
            self._ticking.cancel()
        await asyncio.to_thread(self._end)

    def _beat(self) -> None:
        while not self._stopping.wait(self._every):
            self._pulse.beat()

    def _write(self) -> None:
        while not self._stopping.wait(min(self._every, LOOK_SECONDS)):
            with suppress(Exception):
                self._look()
            self._pulse.write_lines()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Record, from the event loop, that it runs."""
        self._pulse.tick()
        self._ticking = loop.call_later(self._every, self._tick, loop)

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.join(LAST_SECONDS)
            if self._thread.is_alive():
                return  # it hangs in a heartbeat and ends with the process
        self._pulse.close()


def _started(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
