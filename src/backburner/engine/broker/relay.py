"""
Publishes a broker message for each queued job.

The state `queued` is the outbox. Jobs that this process submits are announced at once.
Everything else, such as jobs of crashed processes and messages that the broker lost, is
found by comparing the store with the broker. A surplus message finds no job and does no
harm.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from backburner.domain.errors import BrokerUnavailable, StoreUnavailable
from backburner.engine.broker.health import BrokerHealth
from backburner.engine.loop import Loop
from backburner.engine.observability import telemetry
from backburner.ports.broker import Broker
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.store import Store

GAP_SECONDS: Final = 0.05
"""The minimum time between two comparisons."""
CAP: Final = 5_000
"""How many jobs of a queue are counted at most."""
TOP_UP_SECONDS: Final = 0.25
"""When to check again a queue that has more jobs than that and no messages left."""
CHUNK: Final = 500
FIRST_RETRY_SECONDS: Final = 0.2
PARTING_SECONDS: Final = 2.0


class Relay:
    """A `Notifier` that also publishes to the broker; one in every process."""

    def __init__(  # noqa: PLR0913 - one argument per collaborator
        self,
        store: Store,
        broker: Broker,
        notifier: Notifier,
        clock: Clock,
        faults: Faults,
        broker_health: BrokerHealth,
        *,
        look: float,
    ) -> None:
        """Create it; `look` is the number of seconds between two comparisons."""
        self._store = store
        self._broker = broker
        self._notifier = notifier
        self._clock = clock
        self._faults = faults
        self._broker_health = broker_health
        self._look_ms = int(look * 1000)
        self._told: dict[str, int] = {}
        """Submitted jobs that are not published to the broker yet."""
        self._missed: dict[str, int] = {}
        """The missing messages found by the last comparison."""
        self._looked_at = self._look_at = clock.monotonic()
        self._is_asked = False
        self._is_returning = False
        self._retry = FIRST_RETRY_SECONDS
        self._loop = Loop("relay", self.work, every=look)
        broker_health.on_loss(self._loop.poke)

    @property
    def is_up(self) -> bool:
        """Whether the broker is available."""
        return self._broker_health.is_up

    def start(self) -> None:
        """Start with a comparison, which finds jobs that were never announced."""
        self._is_asked = True
        self._loop.start()

    async def stop(self) -> None:
        """
        Stop; first publish what is known to be unpublished, if that is quick.

        This includes jobs that a stopping worker returned: they would otherwise wait
        for two comparisons of other processes.
        """
        await self._loop.stop()
        with suppress(BrokerUnavailable, StoreUnavailable, TimeoutError):
            async with asyncio.timeout(PARTING_SECONDS):
                await self._tell_all()
                if self._is_asked and self._broker_health.is_up:
                    await self._look(is_asked=True)

    def notify(self, what: Notification) -> None:
        if what & Notification.WORK:
            self._is_asked = True
            self._poke()
        self._notifier.notify(what)

    def listen(self, callback: Callable[[Notification], None]) -> Callable[[], None]:
        return self._notifier.listen(callback)

    def tell(self, counts: Mapping[str, int], what: Notification) -> None:
        """Notify, and publish messages for the number of new jobs in each queue."""
        # Nothing is remembered while the broker is down: a comparison finds it.
        if counts and (self._broker_health.is_up or self._is_returning):
            self._remember(counts)
            self._poke()
        self._notifier.notify(what)

    def _remember(self, counts: Mapping[str, int]) -> None:
        for queue, count in counts.items():
            self._told[queue] = self._told.get(queue, 0) + count

    async def work(self) -> float | None:
        """
        Publish known jobs and compare if it is time.

        Return the seconds until then.
        """
        try:
            if not self._broker_health.is_up:
                await self._return()
            await self._tell_all()
            delay = await self._look_in_time()
        except BrokerUnavailable as error:
            self._broker_health.lose(error)
            self._told.clear()
            delay, self._retry = self._retry, 2 * self._retry
            return delay
        except StoreUnavailable:
            return None
        self._retry = FIRST_RETRY_SECONDS
        return delay

    async def _return(self) -> None:
        """
        Publish what is missing; only then does the broker count as available again.

        A broker may answer but refuse messages: its state would otherwise alternate.
        """
        self._is_returning = True
        self._is_asked = False
        self._looked_at = self._clock.monotonic()
        try:
            await self._broker.ping()
            await self._look(is_asked=True)
        finally:
            self._is_returning = False
        self._broker_health.regain()

    def _poke(self) -> None:
        if self._broker_health.is_up:  # or it would be tried at every notification
            self._loop.poke()

    async def _tell_all(self) -> None:
        while self._told:
            chunk = self._next_chunk()
            try:
                await self._publish(chunk, "submit")
            except asyncio.CancelledError:
                self._remember(
                    chunk
                )  # cancelled: `stop` or the next round publishes it
                raise

    def _next_chunk(self) -> dict[str, int]:
        chunk: dict[str, int] = {}
        room = CHUNK
        for queue in tuple(self._told):
            count = min(room, self._told[queue])
            chunk[queue], room = count, room - count
            self._told[queue] -= count
            if not self._told[queue]:
                del self._told[queue]
            if not room:
                break
        return chunk

    async def _publish(self, counts: Mapping[str, int], cause: str) -> None:
        self._faults.hit("relay.publish")
        await self._broker.publish(counts)
        telemetry.broker_messages_published.labels(cause).inc(sum(counts.values()))

    async def _look_in_time(self) -> float | None:
        """Compare if it is time or requested; return when to compare next."""
        now = self._clock.monotonic()
        gap = self._looked_at + int(GAP_SECONDS * 1000) - now
        if self._is_asked and gap > 0:
            return gap / 1000
        if not self._is_asked and now < self._look_at:
            return (self._look_at - now) / 1000
        is_asked, self._is_asked = self._is_asked, False
        self._looked_at = now
        try:
            delay = await self._look(is_asked=is_asked)
        except BaseException:
            self._is_asked |= is_asked  # cancelled: the comparison is still to be done
            raise
        self._look_at = self._clock.monotonic() + int(delay * 1000)
        return delay

    async def _look(self, *, is_asked: bool) -> float:
        """
        Publish what is missing.

        Messages in flight, and jobs that other processes are about to announce, look
        like missing ones, so only what is missing in two comparisons is published. A
        message that was used here counts for no job, whether or not the broker knows it
        yet, so that jobs released by a job do not wait for the next comparison.
        """
        waiting = await self._store.waiting(CAP)
        if not waiting:
            self._missed = {}
            await self._broker.ping()
            return self._look_ms / 1000
        spent = (
            self._broker_health.spent.copy()
        )  # read now: jobs may be announced while the broker counts
        counted = await self._broker.depths(sorted(waiting))
        depths = {q: max(0, n - spent[q]) for q, n in counted.items()}
        lacks = {queue: n - depths.get(queue, 0) for queue, n in waiting.items()}
        missing = {queue: n for queue, n in lacks.items() if n > 0}
        found = missing if is_asked else _both(missing, self._missed)
        self._missed = {q: n - found.get(q, 0) for q, n in missing.items()}
        for queue, count in found.items():
            for first in range(0, count, CHUNK):
                await self._publish({queue: min(CHUNK, count - first)}, "look")
        is_short = any(n >= CAP and n >= depths.get(q, 0) for q, n in waiting.items())
        return TOP_UP_SECONDS if is_short else self._look_ms / 1000


def _both(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return what was missing in both comparisons."""
    least = {queue: min(n, before.get(queue, 0)) for queue, n in now.items()}
    return {queue: n for queue, n in least.items() if n > 0}
