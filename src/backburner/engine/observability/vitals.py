"""Measures how long the event loop is blocked, and how much memory a process uses."""

import asyncio
import os
from pathlib import Path

from backburner.engine.observability import telemetry
from backburner.ports.clock import Clock
from backburner.ports.log import log

EVERY_MS = 500
ALARM_MS = 1_000
"""From which lag on the event loop counts as blocked."""
RECENT = 20
"""How many of the last lags are kept: those of ten seconds."""
PAGES = Path("/proc/self/statm")


class LagMeter:
    """Measures how late a timer fires: a blocking handler delays it."""

    def __init__(self, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        # Not the loop's own time, which stands still in uvloop while it is blocked.
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._due = clock.monotonic()
        # Replaced, never changed: other threads read it.
        self._recent: tuple[int, ...] = ()

    def start(self) -> None:
        """Start measuring."""
        self._due = self._clock.monotonic() + EVERY_MS
        self._handle = self._loop.call_later(EVERY_MS / 1000, self._tick)

    def stop(self) -> None:
        """Stop measuring."""
        if self._handle is not None:
            self._handle.cancel()

    def worst_ms(self) -> int:
        """
        Return the longest lag of the last ten seconds, or that of now.

        Any thread may call this, also while the loop is blocked.
        """
        return max(0, self._clock.monotonic() - self._due, *self._recent)

    def blocked_since(self) -> int | None:
        """
        Return since when a timer is overdue by a second, or `None` if none is.

        Any thread may call this. The time tells blockages apart.
        """
        due = self._due
        return due if self._clock.monotonic() - due >= ALARM_MS else None

    def _tick(self) -> None:
        lag = max(0, self._clock.monotonic() - self._due)
        self._recent = (*self._recent[1 - RECENT :], lag)
        telemetry.loop_lag.set(lag / 1000)
        if lag > ALARM_MS:
            log.warning("event loop was blocked", duration_ms=lag)
        self.start()


def resident_memory() -> int | None:
    """
    Return how many bytes of this process are in memory; `None` if that is not known.

    Only Linux has the file. It must not raise whatever the file contains: the
    heartbeat reports the number, and without heartbeats the worker loses its lease.
    """
    try:
        return int(PAGES.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
