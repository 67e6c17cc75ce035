"""
Receives broker messages; each permits a worker to claim one job.

Messages are received while slots are free, assigned to a claim before it is made and
acknowledged after it. The store decides which jobs a claim returns. If it returns
fewer, the remaining messages were stale, unless the queue's own limits are the reason.
While the broker is unavailable, and periodically otherwise, the worker claims without
messages.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from backburner.domain.errors import BrokerUnavailable, StoreUnavailable
from backburner.domain.jobs.job import Claim, Instant
from backburner.domain.message import WORK_AVAILABLE
from backburner.engine.broker.health import BrokerHealth
from backburner.engine.loop import Loop, supervised
from backburner.ports.broker import Broker, BrokerMessage
from backburner.ports.clock import Clock
from backburner.ports.log import log
from backburner.ports.store.jobs import ClaimRequest

KEEP_SECONDS: Final = 1.0
"""How long messages without capacity for their jobs are kept …"""
LIMITED_SECONDS: Final = 15.0
"""… and those of a queue whose limits allow no job."""
TIDY_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.5
PARTING_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 1.0
ACCEPT_SECONDS: Final = 10.0
"""How long `stop` waits for messages of other programs to become jobs."""

ForeignHandler: TypeAlias = Callable[[str, Sequence[BrokerMessage]], Awaitable[None]]
"""Processes messages of other programs."""
Grip: TypeAlias = Mapping[str, Sequence[BrokerMessage]]
"""The messages that a claim uses, by queue."""


class Intake:
    """Receives messages from every queue of one worker."""

    def __init__(
        self,
        broker: Broker,
        broker_health: BrokerHealth,
        clock: Clock,
        foreign: ForeignHandler,
        *,
        sweep: float,
    ) -> None:
        """
        Create it.

        `sweep` is the number of seconds between claims without messages.
        """
        self._broker = broker
        self._broker_health = broker_health
        self._clock = clock
        self._foreign = foreign
        self._sweep_ms = int(sweep * 1000)
        self._swept_at = clock.monotonic()
        self._hands: dict[str, list[BrokerMessage]] = {}
        self._since: dict[str, Instant] = {}
        """When messages of a queue were last received."""
        self._done: dict[str, list[BrokerMessage]] = {}
        self._unused: dict[str, list[BrokerMessage]] = {}
        self._is_resting = False
        self._changed = asyncio.Event()
        self._room: Callable[[str], int] = lambda _queue: 0
        self._free: Callable[[], int] = lambda: 0
        self._is_limited: Callable[[str], bool] = lambda _queue: False
        self._wake: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._tidying = Loop("intake", self._tidy, every=TIDY_SECONDS)
        self._unsubscribe: Callable[[], None] | None = None

    def start(
        self,
        queues: Sequence[str],
        room: Callable[[str], int],
        is_limited: Callable[[str], bool],
        wake: Callable[[], None],
        *,
        free: Callable[[], int],
    ) -> None:
        """
        Start.

        `room` and `free` tell how many jobs may begin, of a queue and in all.
        """
        self._room, self._is_limited, self._wake = room, is_limited, wake
        self._free = free
        self._hands = {queue: [] for queue in queues}
        self._unsubscribe = self._broker_health.on_loss(wake)
        self._tasks = [
            asyncio.create_task(
                supervised("intake-receive", partial(self._receive_on, queue)),
                name="intake-receive",
            )
            for queue in queues
        ]
        self._tidying.start()

    async def stop(self) -> None:
        """Stop receiving and return unused messages; repeating it is no error."""
        left = set(self._tasks)
        while left:  # a broker's library may swallow a cancellation: see Loop
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
        self._tasks = []
        await self._finish_accepting()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        await self._tidying.stop()
        for queue in self._hands:
            self._let_go(queue)
        with suppress(TimeoutError):
            async with asyncio.timeout(PARTING_SECONDS):
                await self._tell()

    async def _finish_accepting(self) -> None:
        """
        Wait until messages that are being processed have become jobs.

        A message that is returned while its job commits would become a job twice.
        """
        accepting = [*self._accepting]
        if accepting:
            _, late = await asyncio.wait(accepting, timeout=ACCEPT_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*accepting, return_exceptions=True)

    def bound(self, queue: str) -> int | None:
        """Return how many jobs of a queue may be claimed; `None`: any number."""
        if (
            self._is_limited(queue)
            or not self._broker_health.is_up
            or self._is_sweep_due()
        ):
            return None
        return len(self._hands[queue])

    def look(self) -> None:
        """Record that there may be room for more jobs."""
        self._changed.set()

    def grip(self, claim_requests: Sequence[ClaimRequest]) -> Grip:
        """Assign messages to a claim that is made next."""
        gripped = {}
        for queue, limit, _ in claim_requests:
            hand = self._hands[queue]
            gripped[queue], self._hands[queue] = hand[:limit], hand[limit:]
        return gripped

    def use(self, grip: Grip, claims: Sequence[Claim]) -> None:
        """Acknowledge the messages that were assigned to a claim."""
        if self._is_sweep_due():
            self._swept_at = self._clock.monotonic()
        counts = Counter(claim.queue for claim in claims)
        for queue, messages in grip.items():
            used = counts[queue] if self._is_limited(queue) else len(messages)
            self._spend(queue, messages[:used])
            self._hands[queue][:0] = messages[used:]
        self._tidying.poke()
        self._changed.set()

    def spare(self, grip: Grip) -> None:
        """Return the messages of a failed claim to the broker, and pause receiving."""
        self._is_resting = True
        for queue, messages in grip.items():
            self._hands[queue][:0] = messages
        for queue in self._hands:
            self._let_go(queue)
        self._tidying.poke()

    def resume(self) -> None:
        """Resume receiving."""
        if self._is_resting:
            self._is_resting = False
            self._changed.set()

    def _is_sweep_due(self) -> bool:
        return self._clock.monotonic() - self._swept_at >= self._sweep_ms

    def _left(self, queue: str) -> int:
        """
        Return how many more messages of a queue may be received.

        All queues together hold at most as many as slots are free, but each may always
        hold its equal share, at least one.
        """
        if self._is_resting:
            return 0
        held, most = len(self._hands[queue]), self._most()
        share = most // len(self._hands)
        others = sum(map(len, self._hands.values())) - held
        return max(0, min(self._room(queue), max(share, most - others)) - held)

    def _most(self) -> int:
        """Return how many messages all queues together may hold."""
        return max(self._free(), len(self._hands))

    def _even_out(self) -> None:
        """Return surplus messages of the queue that holds the most."""
        over = sum(map(len, self._hands.values())) - self._most()
        for _ in range(over):
            longest = max(self._hands, key=lambda queue: len(self._hands[queue]))
            self._unused.setdefault(longest, []).append(self._hands[longest].pop())
            self._tidying.poke()

    async def _receive_on(self, queue: str) -> None:
        while True:
            while not self._left(queue):
                self._changed.clear()
                await self._changed.wait()
            try:
                messages = await self._broker.receive(queue, self._left(queue))
                await self._accept(queue, messages)
            except BrokerUnavailable as error:
                self._broker_health.lose(error)
            except StoreUnavailable:
                pass
            except Exception as error:  # noqa: BLE001 - a dead loop is a silent fault
                kind = type(error).__name__
                log.error("intake failed", queue=queue, error_type=kind)
            else:
                continue
            await asyncio.sleep(RETRY_SECONDS)  # noqa: TID251 - back-off
            await self._broker_health.regained()

    async def _accept(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        work_messages = [
            message for message in messages if message.body == WORK_AVAILABLE
        ]
        others = [message for message in messages if message.body != WORK_AVAILABLE]
        left = self._left(queue)  # less than requested if nothing came for long
        if work_messages[left:]:
            self._unused.setdefault(queue, []).extend(work_messages[left:])
            self._tidying.poke()
        if work_messages[:left]:
            self._since[queue] = self._clock.monotonic()
            self._hands[queue] += work_messages[:left]
            self._even_out()
            self._wake()
        if others:
            accepting = asyncio.create_task(self._take_in(queue, others))
            self._accepting.add(accepting)
            accepting.add_done_callback(self._accepting.discard)
            await asyncio.shield(accepting)

    async def _take_in(self, queue: str, others: Sequence[BrokerMessage]) -> None:
        """Process messages of other programs; `stop` waits for the end of this."""
        try:
            await self._foreign(queue, others)
        except BaseException:
            self._unused.setdefault(queue, []).extend(others)
            self._tidying.poke()
            raise
        self._spend(queue, others)
        self._tidying.poke()

    def _spend(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        self._done.setdefault(queue, []).extend(messages)
        self._broker_health.spent[queue] += len(messages)

    def _let_go(self, queue: str) -> None:
        self._unused.setdefault(queue, []).extend(self._hands[queue])
        self._hands[queue] = []

    async def _tidy(self) -> float | None:
        """Return messages that are not needed, and acknowledge used ones."""
        now = self._clock.monotonic()
        for queue, hand in self._hands.items():
            kept = (now - self._since.get(queue, now)) / 1000
            if hand and not self._room(queue) and kept >= KEEP_SECONDS:
                self._let_go(queue)
            elif hand and self._is_limited(queue) and kept >= LIMITED_SECONDS:
                # A surplus message does no harm, and a missing one is published again.
                self._spend(queue, hand)
                self._hands[queue] = []
                self._changed.set()
        await self._tell()
        return None

    async def _tell(self) -> None:
        done, self._done = self._done, {}
        unused, self._unused = self._unused, {}
        try:
            for queue, messages in done.items():
                if messages:
                    await self._broker.acknowledge(queue, messages)
            for queue, messages in unused.items():
                if messages:
                    await self._broker.give_back(queue, messages)
        except BrokerUnavailable as error:
            # The broker delivers them again, because their connection is lost.
            self._broker_health.lose(error)
        finally:
            for queue, messages in done.items():
                self._broker_health.spent[queue] -= len(messages)
