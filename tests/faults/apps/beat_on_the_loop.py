"""`breakable` with a heartbeat that shares the event loop with the handlers."""

import asyncio

from breakable import app

from backburner import wiring
from backburner.engine.loop import Loop
from backburner.engine.run.heartbeat import Pulse

__all__ = ["app"]


class LoopHeartbeat:
    """Beats whenever the loop comes round to it."""

    def __init__(self, pulse: Pulse, *, every: float, **_: object) -> None:
        self._pulse = pulse
        self._loop = Loop("heartbeat", self._beat, every=every)
        self._is_beating = False

    def start(self, worker: str) -> None:
        """Beat for this worker from now on."""
        self._pulse.begin(worker)
        if not self._is_beating:
            self._is_beating = True
            self._loop.start()

    async def stop(self) -> None:
        """Beat no more."""
        await self._loop.stop()

    async def _beat(self) -> None:
        await asyncio.to_thread(self._pulse.beat)


wiring.ThreadHeartbeat = LoopHeartbeat  # type: ignore[assignment, misc]
