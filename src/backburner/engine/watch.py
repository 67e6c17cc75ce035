"""
Event readers: each sees every event once and in order, also after reconnecting.

The event log is the source of truth; a notification only says when to read it. One
query serves all readers of jobs in this process, and one query all streams that select
the same events, so its cost grows with the number of readers and not with the traffic.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial

from backburner.domain.errors import StoreUnavailable
from backburner.domain.events.event import Event
from backburner.domain.groups.batch import BatchState
from backburner.domain.jobs.job import Job, Visibility
from backburner.engine.loop import Loop
from backburner.engine.tail import SETTLE_SECONDS, SharedPage, Tail
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.store import Store
from backburner.ports.store.events import EVERYTHING, EventPage, Topic

PAGE = 500
IDLE_SECONDS = 15.0
"""After this time without events, a reader checks that its job still exists."""
SLOWEST_SECONDS = 0.1
"""Like `SETTLE_SECONDS`, for the ends of flows and batches that take long."""


class _Reader:
    """One reader of one job."""

    __slots__ = ("after", "arrived", "events", "seq")

    def __init__(self, seq: int, after: int) -> None:
        self.seq = seq
        self.after = after
        self.events: list[Event] = []
        self.arrived = asyncio.Event()

    def take(self, event: Event) -> None:
        """Append events that this reader has not seen."""
        if event.n == self.after + 1 and len(self.events) < 2 * PAGE:
            self.after = event.n
            self.events.append(event)
            self.arrived.set()


class Watch:
    """Follows the event log for every reader of this process."""

    def __init__(
        self,
        store: Store,
        notifier: Notifier,
        *,
        poll: float = 1.0,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._store = store
        self._readers: dict[int, dict[_Reader, None]] = {}
        self._ids: dict[str, int] = {}
        self._streams: dict[asyncio.Event, None] = {}
        self._tails: dict[Hashable, Tail] = {}
        self._awaited: dict[str, dict[asyncio.Event, None]] = {}
        """The `asyncio` events of those who wait for each flow or batch."""
        self._pause = SETTLE_SECONDS
        """The pause after a check for ends, until the next one …"""
        self._over = asyncio.Event()
        """… unless an end was notified."""
        self._poll = poll
        self._idle = idle
        self._loop = Loop("watch", self._look, every=poll)
        self._ends = Loop("watch-ends", self._look_for_ends, every=poll)
        self._unsubscribe: Callable[[], None] = notifier.listen(self._hear)

    def start(self) -> None:
        """Start."""
        self._loop.start()
        self._ends.start()

    async def stop(self) -> None:
        """Stop."""
        self._unsubscribe()
        await self._loop.stop()
        await self._ends.stop()

    async def job(self, job: Job, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield a job's events after number `after`, past and future, until it ends."""
        if job.state.is_final and after >= job.events:
            return
        # A reader with a cursor beyond the end gets no old events, and ends with the
        # job.
        above, after = after, min(after, job.events)
        reader = _Reader(job.seq, after)
        self._readers.setdefault(job.seq, {})[reader] = None
        self._ids[job.id] = job.seq
        try:
            self._loop.poke()
            seen, is_last = after, False
            while not is_last or not await self._is_over(job, seen):
                events = await self._next(reader)
                for event in events:
                    seen = event.n
                    if event.n > above:
                        yield event
                is_last = not events or events[-1].is_final
        finally:
            self._forget(job, reader)

    async def stream(
        self, owner: Visibility, *, after: int, topic: Topic = EVERYTHING
    ) -> AsyncGenerator[Event, None]:
        """Yield an owner's events after the global cursor `after`, without end."""
        async with aclosing(self.pages(owner, after=after, topic=topic)) as pages:
            async for page in pages:
                for event in page.events:
                    yield event

    async def pages(
        self, owner: Visibility, *, after: int, topic: Topic = EVERYTHING
    ) -> AsyncGenerator[SharedPage, None]:
        """
        Yield an owner's events after the global cursor page by page, without end.

        Readers of the same events share their reads and pages once they have read what
        was there when they came.
        """
        with self._tail(owner, topic) as (tail, reader):
            is_at_end = False
            while True:
                page = await tail.next(after) if is_at_end else None
                if page is None:
                    found = await self._read(owner, topic, after)
                    is_at_end = found.is_last
                    page = SharedPage(after, found.events, found.upto)
                after = page.upto
                if is_at_end:
                    tail.cursors[reader] = after
                if page.events:
                    yield page

    async def group(
        self,
        owner: Visibility,
        topic: Topic,
        over: Callable[[], Awaitable[int | None]],
        *,
        after: int,
    ) -> AsyncGenerator[Event, None]:
        """
        Yield a flow's or batch's events after the global cursor, until it ends.

        `over` returns the number of its last event once it has ended.
        """
        with self._listening() as notified:
            while True:
                notified.clear()
                last = await over()
                page = await self._read(owner, topic, after)
                for event in page.events:
                    yield event
                after = page.upto
                if last is not None and after >= last:
                    return
                if page.is_last:
                    await self._rest(notified)

    async def end(self, group_id: str, *, seconds: float) -> None:
        """Return once a flow or batch has ended or is gone, or after the timeout."""
        ended = asyncio.Event()
        waiting = self._awaited.setdefault(group_id, {})
        waiting[ended] = None
        self._pause = SETTLE_SECONDS
        try:
            self._ends.poke()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await ended.wait()
        finally:
            del waiting[ended]
            if not waiting:
                self._awaited.pop(group_id, None)

    async def _read(self, owner: Visibility, topic: Topic, after: int) -> EventPage:
        return await self._store.stream(owner, after=after, limit=PAGE, topic=topic)

    @contextmanager
    def _tail(self, owner: Visibility, topic: Topic) -> Iterator[tuple[Tail, object]]:
        """Return what all readers of these events share, and a key for one of them."""
        # A page of an application's topic depends on the reader's cursor: it says
        # whether events after that were deleted. So these readers share nothing.
        key: Hashable = (owner, topic) if topic.name is None else object()
        tail = self._tails.get(key)
        if tail is None:
            read = partial(self._read, owner, topic)
            tail = self._tails[key] = Tail(read, poll=self._poll)
            self._streams[tail.notified] = None
        tail.readers += 1
        reader = object()
        try:
            yield tail, reader
        finally:
            tail.cursors.pop(reader, None)
            tail.readers -= 1
            if not tail.readers:
                del self._tails[key]
                del self._streams[tail.notified]
                tail.stop()

    @contextmanager
    def _listening(self) -> Iterator[asyncio.Event]:
        notified = asyncio.Event()
        self._streams[notified] = None
        try:
            yield notified
        finally:
            self._streams.pop(notified, None)

    async def _rest(self, notified: asyncio.Event) -> None:
        """Wait until there may be new events."""
        await asyncio.sleep(SETTLE_SECONDS)  # noqa: TID251 - as below
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await notified.wait()

    async def _next(self, reader: _Reader) -> list[Event]:
        """Return the events that have arrived; none after a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._idle):
                await reader.arrived.wait()
        reader.arrived.clear()
        events, reader.events = reader.events, []
        if len(events) >= PAGE:
            self._loop.poke()
        return events

    async def _is_over(self, job: Job, seen: int) -> bool:
        """
        Return whether no event can follow those that were seen.

        A retry reopens a job. A deleted job has no events any more, not even those that
        the reader has missed.
        """
        try:
            found = await self._store.find([job.id])
        except StoreUnavailable:
            return False  # unknown; it is checked again
        return not found or (found[0].state.is_final and found[0].events <= seen)

    def _forget(self, job: Job, reader: _Reader) -> None:
        readers = self._readers[job.seq]
        readers.pop(reader, None)
        if not readers:
            del self._readers[job.seq]
            del self._ids[job.id]

    def _hear(self, what: Notification) -> None:
        if what & Notification.ENDED:
            self._over.set()
        if what & Notification.EVENTS:
            if self._readers:
                self._loop.poke()
            if self._awaited:
                self._ends.poke()
            for notified in self._streams:
                notified.set()

    async def _look(self) -> float | None:
        if not self._readers:
            return None
        if await self._tell_readers():
            return 0.0
        await asyncio.sleep(SETTLE_SECONDS)  # noqa: TID251 - the loop owns the time
        return None

    async def _look_for_ends(self) -> float | None:
        if not self._awaited:
            return None
        # The longer a caller has waited, the less a further pause matters.
        self._pause = min(2 * self._pause, SLOWEST_SECONDS)
        self._over.clear()
        if await self._tell_ends():
            self._pause = SETTLE_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._over.wait()
        return None

    async def _tell_ends(self) -> bool:
        """
        Check all awaited flows and batches in one query.

        Return whether one ended.
        """
        going_on: set[str] = set()
        asked = list(self._awaited)
        flows = [name for name in asked if name.startswith("flow_")]
        batches = [name for name in asked if name.startswith("batch_")]
        if flows:
            found = await self._store.find_flows(flows)
            going_on |= {flow.id for flow in found if not flow.state.is_final}
        if batches:
            opened = await self._store.find_batches(batches)
            going_on |= {b.id for b in opened if b.state is BatchState.OPEN}
        over = [name for name in asked if name not in going_on]
        for name in over:
            for ended in self._awaited.get(name, ()):
                ended.set()
        return bool(over)

    async def _tell_readers(self) -> bool:
        """Read new events for all readers of jobs; return whether there are more."""
        # A reader with a full page gets no more until it has read that.
        hungry = {
            seq: [reader.after for reader in readers if len(reader.events) < PAGE]
            for seq, readers in self._readers.items()
        }
        cursors = [(seq, min(afters)) for seq, afters in hungry.items() if afters]
        if not cursors:
            return False
        news = await self._store.news(cursors, limit=PAGE)
        for event in news:
            seq = self._ids.get(event.subject)
            for reader in tuple(self._readers.get(seq or 0, ())):
                reader.take(event)
        return len(news) == PAGE
