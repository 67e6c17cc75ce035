"""Streams of the same events share reads; readers that are behind read alone."""

import asyncio
import random
from contextlib import aclosing

import pytest

from backburner.domain.errors import StoreUnavailable
from backburner.domain.events.event import Event
from backburner.domain.jobs.job import Owner
from backburner.engine.tail import KEPT
from backburner.engine.watch import PAGE, Watch
from backburner.ports.notifier import Notification
from backburner.ports.store.events import EVERYTHING, EventPage, Topic
from backburner.testing.simulation.loop import SeededLoop

ANN, BOB = Owner("acme", "ann"), Owner("acme", "bob")
FAR = 10**12


class Log:
    """A log that every owner sees, and who is notified of it."""

    def __init__(self):
        self.events = []
        self.reads = []
        self.is_down = False
        self.hear = None

    def listen(self, hear):
        self.hear = hear
        return lambda: None

    def add(self, count=1):
        for seq in range(len(self.events) + 1, len(self.events) + count + 1):
            self.events.append(Event(seq, f"job_{seq}", 1, "job.queued", 0, {}))
        self.hear(Notification.EVENTS)

    async def stream(self, owner, *, after, limit, topic=EVERYTHING):
        self.reads.append((owner, topic, after))
        if self.is_down:
            raise StoreUnavailable("the store is away")
        found = self.events[after : after + limit]
        upto = found[-1].seq if found else after
        return EventPage(found, upto, is_last=upto >= len(self.events))


class Reader:
    """Keeps the numbers of the events of a stream."""

    def __init__(self, watch, *, owner=ANN, after=0, topic=EVERYTHING, may_read=None):
        self.seen = []
        self.pages = []
        self._may_read = may_read
        self._has_read = asyncio.Condition()
        self.task = asyncio.create_task(self._read(watch, owner, after, topic))

    async def _read(self, watch, owner, after, topic):
        async with aclosing(watch.pages(owner, after=after, topic=topic)) as pages:
            async for page in pages:
                self.pages.append(page)
                async with self._has_read:
                    self.seen += [event.seq for event in page.events]
                    self._has_read.notify_all()
                if self._may_read is not None:
                    await self._may_read.wait()

    async def has(self, last):
        async with self._has_read:
            await self._has_read.wait_for(lambda: last in self.seen)


@pytest.fixture
def run():
    """Run a test in virtual time, with a log and a watch over it."""
    loop = SeededLoop(random.Random(1))

    async def within(body):
        log = Log()
        watch = Watch(log, log, poll=1_000.0)
        before = asyncio.all_tasks()
        await body(log, watch)
        readers = asyncio.all_tasks() - before
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert not watch._tails
        assert not watch._streams

    yield lambda body: loop.run_until_complete(within(body))
    loop.close()


async def settled():
    await asyncio.sleep(5)  # noqa: TID251 - virtual


def test_readers_of_the_same_events_share_a_read_and_a_page(run):
    async def body(log, watch):
        readers = [Reader(watch) for _ in range(100)]
        await settled()
        log.reads.clear()
        log.add(3)
        for reader in readers:
            await reader.has(3)
        assert [(ANN, EVERYTHING, 0)] == log.reads
        assert {(1, 2, 3)} == {tuple(reader.seen) for reader in readers}
        assert 1 == len({id(page) for reader in readers for page in reader.pages})

    run(body)


def test_readers_who_see_something_else_share_nothing(run):
    async def body(log, watch):
        topic = Topic(tag="nightly")
        readers = [Reader(watch), Reader(watch, owner=BOB), Reader(watch, topic=topic)]
        await settled()
        log.reads.clear()
        log.add()
        for reader in readers:
            await reader.has(1)
        assert {(ANN, EVERYTHING), (BOB, EVERYTHING), (ANN, topic)} == {
            read[:2] for read in log.reads
        }
        assert 3 == len({id(reader.pages[0]) for reader in readers})

    run(body)


def test_readers_of_a_topic_read_by_their_own_cursor(run):
    async def body(log, watch):
        log.add(4)
        topic = Topic(name="batch:1")
        readers = [Reader(watch, after=after, topic=topic) for after in (1, 4)]
        await settled()
        log.add()
        for reader in readers:
            await reader.has(5)
        assert [[2, 3, 4, 5], [5]] == [reader.seen for reader in readers]
        assert readers[0].pages[-1] is not readers[1].pages[-1]

    run(body)


def test_whoever_joins_late_or_returns_gets_each_event_once_and_in_order(run):
    async def body(log, watch):
        first = Reader(watch)
        log.add(2 * PAGE + 7)
        await first.has(2 * PAGE)
        joined = [Reader(watch, after=after) for after in (0, 5, PAGE, 2 * PAGE + 3)]
        log.add(9)
        last = 2 * PAGE + 16
        for reader in (first, *joined):
            await reader.has(last)
        assert list(range(1, last + 1)) == first.seen
        for after, reader in zip((0, 5, PAGE, 2 * PAGE + 3), joined, strict=True):
            assert list(range(after + 1, last + 1)) == reader.seen

    run(body)


def test_a_slow_reader_holds_up_nobody_and_misses_nothing(run):
    async def body(log, watch):
        may_read = asyncio.Event()
        slow, quick = Reader(watch, may_read=may_read), Reader(watch)
        await settled()
        total = 0
        for _ in range(8):
            log.add(PAGE // 2)
            total += PAGE // 2
            await quick.has(total)
        [tail] = watch._tails.values()
        assert KEPT >= sum(len(page.events) for page in tail._pages)
        assert PAGE // 2 == len(slow.seen)
        may_read.set()
        await slow.has(total)
        assert list(range(1, total + 1)) == slow.seen == quick.seen

    run(body)


def test_pages_that_all_readers_have_are_not_kept(run):
    async def body(log, watch):
        may_read = asyncio.Event()
        slow, *quick = Reader(watch, may_read=may_read), Reader(watch), Reader(watch)
        await settled()
        kept = []
        for last in range(1, 21):
            if last == 10:
                may_read.set()
                await slow.has(last - 1)
            log.add()
            for reader in quick:
                await reader.has(last)
            [tail] = watch._tails.values()
            kept.append(len(tail._pages))
        assert [1, *range(1, 9)] == kept[:9]
        assert {1, 2} >= {*kept[10:]}
        await slow.has(20)

    run(body)


def test_a_cursor_beyond_the_end_holds_up_nobody(run):
    async def body(log, watch):
        lost = Reader(watch, after=FAR)
        await settled()
        good = Reader(watch)
        await settled()
        log.reads.clear()
        log.add()
        await good.has(1)
        await settled()
        assert [1] == good.seen
        assert [] == lost.seen
        assert 2 >= len(log.reads)

    run(body)


def test_a_read_that_fails_ends_all_who_share_it_and_the_next_one_goes_on(run):
    async def body(log, watch):
        readers = [Reader(watch) for _ in range(3)]
        await settled()
        log.is_down = True
        log.add()
        ended = await asyncio.gather(
            *(reader.task for reader in readers), return_exceptions=True
        )
        assert [StoreUnavailable] * 3 == [type(error) for error in ended]
        log.is_down = False
        again = Reader(watch)
        await again.has(1)
        log.add()
        await again.has(2)
        assert [1, 2] == again.seen

    run(body)


def test_a_reader_who_leaves_takes_nothing_from_the_others(run):
    async def body(log, watch):
        leaves, stays = Reader(watch), Reader(watch)
        await settled()
        leaves.task.cancel()
        log.add()
        await stays.has(1)
        assert [1] == stays.seen

    run(body)


def test_a_page_is_made_into_something_once(run):
    async def body(log, watch):
        readers = [Reader(watch) for _ in range(2)]
        await settled()
        log.add(2)
        for reader in readers:
            await reader.has(2)
        made = [reader.pages[0].made(_numbers) for reader in readers]
        assert [1, 2] == made[0]
        assert made[0] is made[1]

    run(body)


def _numbers(events):
    return [event.seq for event in events]
