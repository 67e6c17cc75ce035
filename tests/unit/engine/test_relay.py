"""What a relay publishes, and when."""

import asyncio
from datetime import timedelta

import pytest

from backburner.domain.errors import BrokerUnavailable, StoreUnavailable
from backburner.domain.message import WORK_AVAILABLE
from backburner.engine.broker.health import BrokerHealth
from backburner.engine.broker.relay import CAP, CHUNK, Relay
from backburner.ports.faults import NoFaults
from backburner.ports.notifier import Notification
from backburner.testing.broker.memory import MemoryBroker, MemoryServer
from backburner.testing.doubles import FrozenClock, SilentNotifier

LOOK = 3.0


class Waiting:
    """A store of which only the number of queued jobs is known."""

    def __init__(self):
        self.jobs = {}
        self.is_out = False

    async def waiting(self, cap):
        if self.is_out:
            raise StoreUnavailable("out")
        return {queue: min(n, cap) for queue, n in self.jobs.items() if n}


class Noting(MemoryBroker):
    """A broker that keeps what it was asked to publish."""

    def __init__(self):
        super().__init__(MemoryServer())
        self.asked = []

    async def publish(self, counts):
        await super().publish(counts)
        self.asked.append(dict(counts))


@pytest.fixture
def store():
    return Waiting()


@pytest.fixture
def broker():
    return Noting()


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
async def broker_health():
    return BrokerHealth("memory")


@pytest.fixture
async def relay(store, broker, clock, broker_health):
    return Relay(
        store, broker, SilentNotifier(), clock, NoFaults(), broker_health, look=LOOK
    )


@pytest.fixture
def looked(relay, clock):
    """Let the time of a look come."""

    async def looked():
        clock.advance(timedelta(seconds=LOOK))
        return await relay.work()

    return looked


async def test_what_a_submit_tells_is_published_and_rung(relay, broker):
    relay.tell({"a": 2, "b": 1}, Notification.WORK | Notification.EVENTS)
    relay.tell({"a": 1}, Notification.WORK)
    await relay.work()

    assert [{"a": 3, "b": 1}] == broker.asked
    assert Notification.WORK | Notification.EVENTS == relay._notifier.notified


async def test_many_are_published_in_portions(relay, broker):
    relay.tell({"a": CHUNK + 1, "b": 2}, Notification.WORK)
    await relay.work()

    assert [{"a": CHUNK}, {"a": 1, "b": 2}] == broker.asked


async def test_what_is_missing_once_may_be_on_its_way(broker, store, looked):
    store.jobs = {"a": 5}
    await looked()
    first = [*broker.asked]
    store.jobs = {"a": 3}
    await looked()

    assert [] == first
    assert [{"a": 3}] == broker.asked, "what was missing both times"


async def test_what_was_missing_and_came_is_not_published(broker, store, looked):
    store.jobs = {"a": 2}
    await looked()
    broker.server.put("a", b"one", b"two")
    await looked()
    await looked()

    assert [] == broker.asked


async def test_after_a_ring_of_ones_own_what_is_missing_is_published_at_once(
    relay, broker, store
):
    await relay.work()
    store.jobs = {"a": 2}
    relay.notify(Notification.EVENTS)
    wish = await relay.work()
    quiet = [*broker.asked]
    relay.notify(Notification.WORK | Notification.EVENTS)
    relay._looked_at -= 1_000
    await relay.work()

    assert [] == quiet, "a notification about something else asks for nothing"
    assert wish > 0
    assert [{"a": 2}] == broker.asked


async def test_rings_in_quick_succession_are_one_look(relay, broker, store, clock):
    store.jobs = {"a": 1}
    relay.notify(Notification.WORK)
    clock.advance(timedelta(seconds=1))
    await relay.work()
    store.jobs = {"a": 2}
    relay.notify(Notification.WORK)
    wish = await relay.work()
    at_once = [*broker.asked]
    clock.advance(timedelta(seconds=wish))
    await relay.work()

    assert [{"a": 1}] == at_once
    assert [{"a": 1}, {"a": 1}] == broker.asked


async def test_a_backlog_over_the_cap_is_topped_up_soon(relay, broker, store):
    store.jobs = {"a": 10 * CAP}
    relay.notify(Notification.WORK)
    relay._looked_at -= 1_000
    wish = await relay.work()

    assert CAP == sum(counts["a"] for counts in broker.asked)
    assert wish < LOOK


async def test_a_lost_broker_is_tried_again_and_then_told_everything(
    relay, broker, store
):
    broker.server.stop()
    relay.tell({"a": 4}, Notification.WORK)
    first = await relay.work()
    second = await relay.work()
    lost = relay.is_up
    store.jobs = {"a": 4}
    broker.server.start()
    relay._looked_at -= 1_000
    await relay.work()

    assert not lost
    assert 0 < first < second
    assert relay.is_up
    assert [{"a": 4}] == broker.asked, "by a look, and not twice"


async def test_a_broker_that_answers_and_refuses_messages_stays_lost(
    relay, broker, store, broker_health
):
    async def refuse(_counts):
        raise BrokerUnavailable("no memory")

    lost, publish = [], broker.publish
    broker_health.on_loss(lambda: lost.append(1))
    store.jobs, broker.publish = {"a": 4}, refuse
    relay.tell({"a": 4}, Notification.WORK)
    waits = [await relay.work() for _ in range(4)]
    broker.publish = publish
    is_up = relay.is_up
    await relay.work()

    assert [1] == lost
    assert not is_up
    assert sorted(set(waits)) == waits, "it is tried less and less often"
    assert relay.is_up
    assert [{"a": 4}] == broker.asked


async def test_what_is_submitted_while_a_broker_comes_back_is_told(
    relay, broker, store, broker_health
):
    broker_health.lose(BrokerUnavailable("out"))
    counted, depths = {"a": 1}, broker.depths

    async def submit_meanwhile(queues):
        found = await depths(queues)
        relay.tell({"a": 2}, Notification.WORK)
        return found

    store.jobs, broker.depths = counted, submit_meanwhile
    await relay.work()

    assert [{"a": 1}, {"a": 2}] == broker.asked


async def test_a_broker_that_is_lost_while_nothing_waits_is_noticed(
    relay, broker, looked
):
    broker.server.stop()
    await looked()

    assert not relay.is_up


async def test_a_store_that_is_out_does_not_make_the_broker_lost(relay, store, looked):
    store.is_out = True
    await looked()

    assert relay.is_up


async def test_what_is_untold_is_told_before_the_end(relay, broker):
    relay.tell({"a": 1}, Notification.WORK)
    await relay.stop()

    assert [{"a": 1}] == broker.asked


async def test_what_was_rung_for_is_looked_for_before_the_end(relay, broker, store):
    await relay.work()
    store.jobs = {"a": 2}
    relay.notify(Notification.WORK)
    await relay.stop()

    assert [{"a": 2}] == broker.asked


async def test_without_a_ring_the_end_looks_for_nothing(relay, broker, store):
    # Control: others may be about to tell of it.
    await relay.work()
    store.jobs = {"a": 2}
    await relay.stop()

    assert [] == broker.asked


async def test_a_look_that_the_end_cuts_short_is_made_once_more(
    relay, broker, store, monkeypatch
):
    store.jobs = {"a": 2}
    begun, depths = asyncio.Event(), broker.depths

    async def hang(_queues):
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(broker, "depths", hang)
    relay._looked_at -= 1_000
    relay.start()
    async with asyncio.timeout(60):
        await begun.wait()
    monkeypatch.setattr(broker, "depths", depths)
    await relay.stop()

    assert [{"a": 2}] == broker.asked


async def test_the_end_does_not_wait_for_a_broker_that_is_down(relay, broker):
    relay.tell({"a": 1}, Notification.WORK)
    broker.server.stop()
    await relay.stop()

    with pytest.raises(BrokerUnavailable):
        await broker.ping()
    assert [] == broker.asked


async def test_a_message_that_was_used_up_here_stands_for_no_job(
    relay, store, broker, clock, broker_health
):
    store.jobs = {"a": 1}
    broker.server.put("a", WORK_AVAILABLE)
    broker_health.spent["a"] = 1
    relay.notify(Notification.WORK)
    clock.advance(timedelta(seconds=1))
    await relay.work()

    assert [{"a": 1}] == broker.asked, "the broker counts it, but it is as good as gone"


async def test_what_was_being_published_at_the_end_is_told_all_the_same(relay, broker):
    publish, begun = broker.publish, asyncio.Event()

    async def slowly(_counts):
        begun.set()
        await asyncio.Event().wait()

    broker.publish = slowly
    relay.start()
    relay.tell({"a": 2}, Notification.WORK)
    await begun.wait()
    stopping = asyncio.create_task(relay.stop())
    broker.publish = publish
    await stopping

    assert 2 == broker.server.depth("a")
