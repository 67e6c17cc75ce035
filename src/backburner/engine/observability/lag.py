"""Measures how long the event loop is blocked."""

import asyncio

from backburner.engine.observability import telemetry
from backburner.ports.log import log

EVERY = 0.5
ALARM = 1.0


class LagMeter:
    """Measures how late a timer fires: a blocking handler delays it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring."""
        self._arm()

    def stop(self) -> None:
        """Stop measuring."""
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        self._handle = self._loop.call_later(
            EVERY, self._tick, self._loop.time() + EVERY
        )

    def _tick(self, due: float) -> None:
        lag = max(0.0, self._loop.time() - due)
        telemetry.loop_lag.set(lag)
        if lag > ALARM:
            log.warning("event loop was blocked", duration_ms=round(lag * 1000))
        self._arm()
