"""How often those are looked for who wait for an end: by a loop that owns the time."""

import asyncio
import random
from types import SimpleNamespace
from unittest.mock import AsyncMock

from backburner.domain.groups.batch import BatchState
from backburner.engine.groups import batches as engine
from backburner.engine.watch import SETTLE_SECONDS, SLOWEST_SECONDS, Watch
from backburner.ports.faults import NoFaults
from backburner.ports.notifier import Notification
from backburner.testing.doubles import FrozenClock
from backburner.testing.simulation.loop import SeededLoop

SECONDS = 10.0


class Notifier:
    """A notifier that is rung by hand."""

    def listen(self, hear):
        self.hear = hear
        return lambda: None


class Batches:
    """A store with one batch, which ends at its time."""

    def __init__(self, loop):
        self._loop = loop
        self.looks = 0

    async def find_batches(self, _ids):
        self.looks += 1
        is_over = self._loop.time() >= SECONDS
        state = BatchState.FINISHED if is_over else BatchState.OPEN
        return [SimpleNamespace(id="batch_1", state=state)]


async def waited(loop, store, *, is_told=False):
    """Wait for the batch in an instance that is never quiet; return until when."""
    notifier = Notifier()
    watch = Watch(store, notifier, poll=1.0)
    watch.start()

    async def notify():
        while True:
            notifier.hear(Notification.EVENTS)
            await asyncio.sleep(SETTLE_SECONDS / 5)  # noqa: TID251 - virtual

    notifying = asyncio.create_task(notify())
    if is_told:
        loop.call_at(SECONDS, notifier.hear, Notification.ENDED)
    await watch.end("batch_1", seconds=60.0)
    notifying.cancel()
    await watch.stop()
    return loop.time()


def test_a_long_wait_takes_few_looks_and_hears_of_its_end_soon():
    loop = SeededLoop(random.Random(1))
    store = Batches(loop)
    ended = loop.run_until_complete(waited(loop, store))
    loop.close()

    assert ended - SECONDS <= SLOWEST_SECONDS
    assert store.looks <= SECONDS / SLOWEST_SECONDS + 5


def test_whoever_is_told_of_the_end_waits_no_longer():
    loop = SeededLoop(random.Random(1))
    ended = loop.run_until_complete(waited(loop, Batches(loop), is_told=True))
    untold = SeededLoop(random.Random(1))
    later = untold.run_until_complete(waited(untold, Batches(untold)))
    loop.close()
    untold.close()

    assert ended == SECONDS < later


async def test_the_end_of_a_batch_is_rung():
    notified = []
    store = SimpleNamespace(finish_batch=AsyncMock(return_value=True))
    batches = engine.Batches(
        store=store,
        notifier=SimpleNamespace(notify=notified.append),
        clock=FrozenClock(),
        faults=NoFaults(),
        submission=None,
        watch=None,
        payloads=None,
    )
    await batches._finish(1)

    assert [Notification.ENDED] == [what & Notification.ENDED for what in notified]
