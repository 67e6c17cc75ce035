"""What a worker may claim by the messages it has in hand."""

import asyncio
from datetime import timedelta

import pytest

from backburner.domain.errors import BrokerUnavailable, StoreUnavailable
from backburner.domain.message import WORK_AVAILABLE
from backburner.engine.broker.health import BrokerHealth
from backburner.engine.broker.intake import (
    KEEP_SECONDS,
    LIMITED_SECONDS,
    Intake,
)
from backburner.ports.store.jobs import ClaimRequest
from backburner.testing.broker.memory import MemoryBroker, MemoryServer
from backburner.testing.doubles import FrozenClock
from backburner.testing.samples import a_claim

SWEEP = 15.0


class World:
    """An intake, and what stands around it."""

    def __init__(self):
        self.server = MemoryServer()
        self.clock = FrozenClock()
        self.broker_health = BrokerHealth("memory")
        self.free = 10
        self.limited = set()
        self.strange = []
        self.intake = Intake(
            MemoryBroker(self.server),
            self.broker_health,
            self.clock,
            self._take,
            sweep=SWEEP,
        )

    def start(self):
        self.intake.start(
            ["a", "b"],
            lambda _: self.free,
            self.limited.__contains__,
            lambda: None,
            free=lambda: self.free,
        )

    async def _take(self, _queue, messages):
        self.strange += [message.body for message in messages]

    def pass_by(self, seconds):
        self.clock.advance(timedelta(seconds=seconds))

    def bounds(self):
        return self.intake.bound("a"), self.intake.bound("b")


async def test_a_message_that_becomes_a_job_at_the_end_is_not_given_back(until):
    begun, may_commit = asyncio.Event(), asyncio.Event()
    world = World()

    async def commit(_queue, _messages):
        begun.set()
        await may_commit.wait()

    world.intake._foreign = commit
    world.start()
    world.server.put("a", b"a request")
    async with asyncio.timeout(60):
        await begun.wait()
        stopping = asyncio.create_task(world.intake.stop())
        await until(lambda: not world.intake._tasks)
        may_commit.set()
        await stopping

    assert 0 == world.server.depth("a")


async def test_a_message_that_could_not_become_a_job_at_the_end_is_given_back(until):
    begun, may_fail = asyncio.Event(), asyncio.Event()
    world = World()

    async def fail(_queue, _messages):
        begun.set()
        await may_fail.wait()
        raise StoreUnavailable("out")

    world.intake._foreign = fail
    world.start()
    world.server.put("a", b"a request")
    async with asyncio.timeout(60):
        await begun.wait()
        stopping = asyncio.create_task(world.intake.stop())
        await until(lambda: not world.intake._tasks)
        may_fail.set()
        await stopping

    assert 1 == world.server.depth("a")
    assert 0 == world.server.handed("a")


@pytest.fixture
async def world():
    world = World()
    world.start()
    yield world
    await world.intake.stop()


async def test_no_more_may_be_claimed_than_messages_are_in_hand(world, until):
    world.server.put("a", WORK_AVAILABLE, WORK_AVAILABLE)
    await until(lambda: world.server.delivered == 2)

    assert (2, 0) == world.bounds()


async def test_no_more_are_received_than_there_is_room_for(world, until):
    world.free = 3
    world.server.put("a", *[WORK_AVAILABLE] * 5)
    await until(lambda: world.server.handed("a") == 3)

    assert (3, 0) == world.bounds()
    assert 5 == world.server.depth("a")


async def test_queues_together_have_no_more_in_hand_than_slots_are_free(world, until):
    world.server.put("a", *[WORK_AVAILABLE] * 20)
    await until(lambda: world.server.handed("a") == 10)
    world.server.put("b", *[WORK_AVAILABLE] * 20)
    await until(lambda: world.server.handed("b") == 5)
    await until(lambda: world.server.handed("a") == 5)

    assert (5, 5) == world.bounds()
    assert (20, 20) == (world.server.depth("a"), world.server.depth("b"))


async def test_with_one_slot_free_no_queue_keeps_the_others_waiting(world, until):
    world.free = 1
    world.server.put("a", *[WORK_AVAILABLE] * 5)
    await until(lambda: world.server.handed("a") == 1)
    world.server.put("b", WORK_AVAILABLE)
    await until(lambda: world.server.handed("b") == 1)

    assert (1, 1) == world.bounds()


async def test_a_claim_that_finds_fewer_uses_all_its_messages_up(world, until):
    world.server.put("a", *[WORK_AVAILABLE] * 5)
    await until(lambda: world.server.delivered == 5)
    grip = world.intake.grip([ClaimRequest("a", 4)])
    world.intake.use(grip, [a_claim(queue="a")])

    assert (1, 0) == world.bounds()
    await until(lambda: world.server.depth("a") == 1)


async def test_what_is_used_up_is_known_until_the_broker_was_told(world, until):
    world.server.put("a", *[WORK_AVAILABLE] * 3)
    await until(lambda: world.server.delivered == 3)
    world.intake.use(world.intake.grip([ClaimRequest("a", 2)]), [a_claim(queue="a")])
    at_once = world.broker_health.spent["a"]
    await until(lambda: world.server.depth("a") == 1)

    assert 2 == at_once
    await until(lambda: world.broker_health.spent["a"] == 0)


async def test_a_claim_of_a_limited_queue_uses_up_what_it_found(world, until):
    world.limited.add("a")
    world.server.put("a", *[WORK_AVAILABLE] * 5)
    await until(lambda: world.server.delivered == 5)
    unbound = world.intake.bound("a")
    grip = world.intake.grip([ClaimRequest("a", 10)])
    world.intake.use(grip, [a_claim(queue="a")])

    assert unbound is None
    await until(lambda: world.server.depth("a") == 4)
    assert 4 == world.server.handed("a"), "the others wait for the limit here"


async def test_messages_that_a_limit_keeps_for_long_are_done_with(world, until):
    world.limited.add("a")
    world.server.put("a", WORK_AVAILABLE, WORK_AVAILABLE)
    await until(lambda: world.server.delivered == 2)
    world.pass_by(LIMITED_SECONDS)
    await world.intake._tidy()

    assert 0 == world.server.depth("a")


async def test_a_claim_that_fails_gives_back_everything(world, until):
    world.server.put("a", WORK_AVAILABLE, WORK_AVAILABLE)
    await until(lambda: world.server.delivered == 2)
    world.intake.spare(world.intake.grip([ClaimRequest("a", 1)]))
    await until(lambda: world.server.handed("a") == 0)
    at_rest = world.bounds()
    world.intake.resume()
    await until(lambda: world.server.handed("a") == 2)

    assert (0, 0) == at_rest
    assert (2, 0) == world.bounds()


async def test_messages_without_room_are_kept_for_a_moment_only(world, until):
    world.server.put("a", WORK_AVAILABLE, WORK_AVAILABLE)
    await until(lambda: world.server.delivered == 2)
    world.free = 0
    await world.intake._tidy()
    kept = world.server.handed("a")
    world.pass_by(KEEP_SECONDS)
    await world.intake._tidy()

    assert (2, 0) == (kept, world.server.handed("a"))


async def test_claims_are_not_bound_while_the_broker_is_down(world):
    world.broker_health.lose(BrokerUnavailable("gone"))
    down = world.bounds()
    world.broker_health.regain()

    assert (None, None) == down
    assert (0, 0) == world.bounds()


async def test_every_now_and_then_one_claim_is_not_bound(world):
    before = world.bounds()
    world.pass_by(SWEEP)
    due = world.bounds()
    world.intake.use({}, [])

    assert ((0, 0), (None, None), (0, 0)) == (before, due, world.bounds())


async def test_what_is_no_hint_is_handed_on_and_done_with(world, until):
    world.server.put("a", b"hello", WORK_AVAILABLE)
    await until(lambda: world.server.depth("a") == 1)

    assert [b"hello"] == world.strange
    assert (1, 0) == world.bounds()


async def test_what_cannot_be_handed_on_is_given_back(world, until, monkeypatch):
    async def fail(_queue, _messages):
        raise BrokerUnavailable("gone")

    monkeypatch.setattr(world.intake, "_foreign", fail)
    world.server.put("a", b"hello")
    await until(lambda: not world.broker_health.is_up)
    await until(lambda: world.server.handed("a") == 0)

    assert 1 == world.server.depth("a")


async def test_a_worker_that_stops_keeps_nothing(world, until):
    world.server.put("a", WORK_AVAILABLE)
    world.server.put("b", WORK_AVAILABLE)
    await until(lambda: world.server.delivered == 2)
    await world.intake.stop()
    await world.intake.stop()

    assert (0, 0) == (world.server.handed("a"), world.server.handed("b"))
    assert (1, 1) == (world.server.depth("a"), world.server.depth("b"))


class Stubborn(MemoryBroker):
    """Keeps a cancellation to itself, once."""

    async def receive(self, queue, limit):
        try:
            return await super().receive(queue, limit)
        except asyncio.CancelledError:
            return await super().receive(queue, limit)


async def test_receivers_end_though_the_broker_swallowed_their_cancellation(
    world, until
):
    await world.intake.stop()
    world.intake._broker = Stubborn(world.server)
    world.start()
    world.server.put("a", WORK_AVAILABLE)
    await until(lambda: world.server.handed("a") == 1)
    stopping = asyncio.create_task(world.intake.stop())
    done, _ = await asyncio.wait({stopping}, timeout=60)

    assert {stopping} == done
