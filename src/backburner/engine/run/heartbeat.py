"""
Renews a worker's lease from a separate thread.

A handler that blocks the event loop for a while must not cost the worker its jobs, so
the lease is renewed without the loop. One that blocks it for good must not keep them
for ever: without a tick of the loop for a given time, the lease is left to run out.
"""

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Protocol

from backburner.domain.errors import StoreUnavailable
from backburner.ports.clock import Clock
from backburner.ports.log import log
from backburner.ports.store.workers import Heart

LAST_SECONDS = 5.0
"""How long the last beat is waited for."""


class Heartbeat(Protocol):
    """Renews a lease until it is stopped."""

    def start(self, worker: str) -> None:
        """Beat for this worker from now on."""
        ...

    async def stop(self) -> None:
        """Beat no more; return when the last beat is over."""
        ...


class Pulse:
    """What one beat means, apart from when it comes."""

    def __init__(
        self,
        heart: Heart,
        clock: Clock,
        *,
        lease_ms: int,
        lost: Callable[[str], None],
        blocked_ms: float = math.inf,
    ) -> None:
        """Take for how long the event loop may be blocked before beats end."""
        self._heart = heart
        self._clock = clock
        self._lease_ms = lease_ms
        self._lost = lost
        self._worker = ""
        self._last = 0
        self._blocked_ms = blocked_ms
        self._ticked = clock.monotonic()
        self._was_blocked = False

    def begin(self, worker: str) -> None:
        """Take up a new name, whose lease has just begun."""
        self._worker = worker
        self._last = self._clock.monotonic()

    def tick(self) -> None:
        """Take note that the event loop goes round."""
        self._ticked = self._clock.monotonic()

    def beat(self) -> None:
        """Renew the lease; say when it is lost, or was not renewed for too long."""
        if self._is_blocked():
            return
        worker, now = self._worker, self._clock.monotonic()
        try:
            alive = self._heart.beat(worker)
        except StoreUnavailable as error:
            log.warning("heartbeat failed", worker=worker, code=error.code)
            # By now, not by when it began: a beat may hang for a while before it fails.
            alive = self._clock.monotonic() - self._last < self._lease_ms
        except Exception as error:  # noqa: BLE001 - without beats the worker is lost
            kind = type(error).__name__
            log.error("heartbeat failed", worker=worker, error_type=kind)
            alive = self._clock.monotonic() - self._last < self._lease_ms
        else:
            self._last = now
        if not alive and worker == self._worker:
            self._lost(worker)

    def _is_blocked(self) -> bool:
        """Say whether the event loop stands still for too long; report it once."""
        is_blocked = self._clock.monotonic() - self._ticked > self._blocked_ms
        if is_blocked and not self._was_blocked:
            log.error("event loop blocked", worker=self._worker)
        self._was_blocked = is_blocked
        return is_blocked

    def close(self) -> None:
        """Give the heart back."""
        self._heart.close()


class ThreadHeartbeat:
    """A thread that beats every so often."""

    def __init__(self, pulse: Pulse, *, every: float) -> None:
        self._pulse = pulse
        self._every = every
        self._ticking: asyncio.TimerHandle | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, worker: str) -> None:
        self._pulse.begin(worker)
        if self._ticking is None:
            self._tick(asyncio.get_running_loop())
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="backburner-heartbeat", daemon=True
            )
            self._thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        if self._ticking is not None:
            self._ticking.cancel()
        await asyncio.to_thread(self._end)

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            self._pulse.beat()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Show, from the event loop, that it goes round."""
        self._pulse.tick()
        self._ticking = loop.call_later(self._every, self._tick, loop)

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.join(LAST_SECONDS)
            if self._thread.is_alive():
                return  # it hangs in a beat, and goes with the process
        self._pulse.close()
