"""Tracks whether the message broker is available to this process."""

import asyncio
from collections import Counter
from collections.abc import Callable

from backburner.domain.errors import BrokerUnavailable
from backburner.engine.observability import telemetry


class BrokerHealth:
    """The state of one broker, shared by relay and intake."""

    def __init__(self, transport: str) -> None:
        """Create it as available; `transport` is its label in metrics."""
        self._transport = transport
        self._up = asyncio.Event()
        self._up.set()
        self._on_loss: list[Callable[[], None]] = []
        self.spent: Counter[str] = Counter()
        """
        Messages of queues that were used here and may still be counted by the broker.
        """
        telemetry.broker_up.labels(transport).set(1)

    @property
    def is_up(self) -> bool:
        """Whether the broker was available when it was last used."""
        return self._up.is_set()

    def lose(self, error: BrokerUnavailable) -> None:
        """Record that the broker is unavailable; callbacks are called once."""
        if not self.is_up:
            return
        self._up.clear()
        telemetry.broker_changed(self._transport, is_up=False, code=error.code)
        for callback in self._on_loss:
            callback()

    def regain(self) -> None:
        """Record that the broker answers."""
        if not self.is_up:
            self._up.set()
            telemetry.broker_changed(self._transport, is_up=True)

    async def regained(self) -> None:
        """Wait until the broker answers."""
        await self._up.wait()

    def on_loss(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the broker is lost; return a function that ends this."""
        self._on_loss.append(callback)
        return lambda: self._on_loss.remove(callback)
