"""
A thousand ticks, three nodes, one clock that is told to go on: each tick fires once.

Nodes die at a tick, and their own clocks are an hour off; the store's counts.
"""

import asyncio
import shutil
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from datetime import timedelta

import asyncpg
import pytest

from backburner import Context, Schedule, capability
from backburner.domain.errors import StoreUnavailable
from backburner.domain.queues.schedule import ScheduleState
from backburner.engine.maintenance.scheduler import Scheduler
from backburner.engine.registry import Registry
from backburner.engine.submit.submission import LOCAL, Submission
from backburner.ports.faults import NoFaults
from backburner.ports.store.maintenance import JobFilter
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared import timetable
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock, SeededDice, SilentNotifier
from backburner.testing.samples import NOON

MINUTE = timedelta(minutes=1)
MINUTE_MS = 60_000
HOUR = timedelta(hours=1)
LINES = {
    "schedule.firing": 1,
    "transact.before_commit": 2,
    "transact.after_commit": 2,
    "schedule.fired": 1,
}
"""Where a node may die at its first tick; its plan was a transaction before."""


@capability("count")
async def count(_ctx: Context, value: int) -> int:
    return value


class Killed(Exception):
    pass


class Mortal(NoFaults):
    """Dies at a failpoint, when it is passed the nth time, and stays dead."""

    def __init__(self, name="", times=0):
        self._name = name
        self._times = times
        self._is_dead = False

    def hit(self, name):
        if name == self._name:
            self._times -= 1
            self._is_dead |= self._times == 0
        if self._is_dead:
            raise Killed


class SqliteFleet:
    """Nodes over one file; time is a frozen clock's."""

    def __init__(self, path, stack):
        self._path = path
        self._stack = stack
        self._clock = FrozenClock()

    async def store(self, faults):
        store = SqliteStore(Database(self._path), self._clock, faults=faults)
        await store.open()
        self._stack.push_async_callback(store.close)
        return store

    async def let_pass(self, span):
        self._clock.advance(span)


class PostgresFleet:
    """Nodes over one server; time is a table's."""

    def __init__(self, url, stack, connection):
        self._url = url
        self._stack = stack
        self._connection = connection

    async def store(self, faults):
        store = PostgresStore(self._url, queries=_by_table_clock(), faults=faults)
        await store.open()
        self._stack.push_async_callback(store.close)
        return store

    async def let_pass(self, span):
        ms = span // timedelta(milliseconds=1)
        await self._connection.execute("UPDATE test_clock SET ms = ms + $1", ms)


def _by_table_clock():
    loaded = Queries.load()
    table = "(SELECT to_timestamp(ms / 1000.0) FROM test_clock)"
    return Queries(
        **{
            field.name: getattr(loaded, field.name).replace("clock_timestamp()", table)
            for field in fields(Queries)
        }
    )


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def sqlite(tmp_path, stack, template):
    shutil.copy(template, tmp_path)
    return SqliteFleet(tmp_path / "jobs.db", stack)


@pytest.fixture
async def postgres(migrated_url, stack):
    connection = await asyncpg.connect(migrated_url)
    stack.push_async_callback(connection.close)
    await connection.execute("CREATE TABLE test_clock (ms bigint)")
    await connection.execute("INSERT INTO test_clock VALUES ($1)", NOON)
    return PostgresFleet(migrated_url, stack, connection)


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request):
    return request.getfixturevalue(request.param)


async def a_node(
    fleet,
    failpoint="",
    times=0,
    *,
    off=timedelta(),
    called="minutely",
    weaken=None,
    **fields,
):
    """Return a scheduler of its own over the fleet's database."""
    clock = FrozenClock()
    clock.advance(off)
    usual = {"name": called, "cron": "* * * * *", "capability": count, "input": 1}
    faults = Mortal(failpoint, times)
    store = await fleet.store(faults)
    if weaken is not None:
        store.fire = weaken(store)
    return Scheduler(
        store,
        SilentNotifier(),
        faults,
        Submission(Registry([count]), clock, SeededDice(id(faults))),
        [Schedule(**usual | fields)],
    )


async def go_on(fleet, nodes, ticks):
    """Let minutes pass, and every node look after each."""
    for _ in range(ticks):
        await fleet.let_pass(MINUTE)
        await asyncio.gather(*(node.fire() for node in nodes), return_exceptions=True)


async def the_ticks(fleet):
    """Count how often each tick fired, by the minutes since noon."""
    store = await fleet.store(NoFaults())
    jobs = await store.jobs(
        JobFilter(tag="schedule:minutely"), before=None, limit=10_000
    )
    told = [tag for job in jobs for tag in job.tags if tag.startswith("tick:")]
    return Counter((int(tag[5:]) - NOON) // MINUTE_MS for tag in told)


@pytest.mark.parametrize("ticks", [200, pytest.param(1_000, marks=pytest.mark.chaos)])
async def test_many_ticks_fire_once_each_though_nodes_die(fleet, ticks):
    steady = await a_node(fleet, off=HOUR)
    first = await a_node(fleet, "schedule.firing", 50, off=-HOUR)
    second = await a_node(fleet, "schedule.fired", 50)
    third = await a_node(fleet, "transact.before_commit", 20)

    await asyncio.gather(steady.fire(), first.fire(), second.fire())
    await go_on(fleet, [steady, first, second], ticks // 2)
    fourth = await a_node(fleet, "transact.after_commit", 30)
    await go_on(fleet, [steady, third, fourth, await a_node(fleet)], ticks // 2)

    assert Counter(range(1, ticks + 1)) == await the_ticks(fleet)


async def die_at_the_first_tick(fleet, line, **options):
    """Have the only node die at a tick, and another come half a minute later."""
    doomed = await a_node(fleet, line, LINES[line], **options)
    await doomed.fire()
    await fleet.let_pass(MINUTE)
    with pytest.raises(Killed):
        await doomed.fire()
    await fleet.let_pass(timedelta(seconds=30))
    await (await a_node(fleet)).fire()


@pytest.mark.parametrize("line", LINES)
async def test_a_tick_at_which_the_only_node_dies_fires_once_when_another_comes(
    fleet, line
):
    await die_at_the_first_tick(fleet, line)

    assert {1: 1} == await the_ticks(fleet)


def by_a_look_before(store):
    """Fire if a look outside the transaction says that nobody has."""

    async def fire(firing):
        _, states = await store.schedules()
        if firing.expected not in [state.next_at for state in states]:
            return False
        await store.transact(lambda tx: tx.submit(firing.jobs))
        return await store.transact(timetable.fire(firing._replace(jobs=())))

    return fire


async def test_with_the_look_outside_the_transaction_the_tick_fires_twice(fleet):
    await die_at_the_first_tick(fleet, "transact.after_commit", weaken=by_a_look_before)

    assert {1: 2} == await the_ticks(fleet)


async def test_with_the_look_outside_the_transaction_nodes_fire_one_tick_each(fleet):
    nodes = [await a_node(fleet, weaken=by_a_look_before) for _ in range(3)]
    await go_on(fleet, nodes, 20)

    assert max((await the_ticks(fleet)).values()) > 1


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", {10: 1}),
        ("run_once", {10: 1}),
        ("run_all", dict.fromkeys(range(1, 11), 1)),
    ],
)
async def test_when_all_nodes_were_down_the_schedule_says_what_is_made_up_for(
    fleet, missed, expected
):
    await (await a_node(fleet, missed=missed)).fire()
    await fleet.let_pass(10 * MINUTE)

    await (await a_node(fleet, missed=missed)).fire()

    assert expected == await the_ticks(fleet)


async def test_a_node_comes_back_when_the_next_tick_is(fleet):
    node = await a_node(fleet, cron="*/10 * * * *")
    await node.fire()
    await fleet.let_pass(4 * MINUTE)

    assert 360 == await node.fire()


async def test_a_node_with_older_times_fires_by_the_newer_ones(fleet):
    old = await a_node(fleet)
    await old.fire()
    await (await a_node(fleet, cron="*/5 * * * *")).fire()

    await go_on(fleet, [old], 10)

    assert {5: 1, 10: 1} == await the_ticks(fleet)


async def test_what_no_code_here_declares_is_not_fired(fleet):
    await (await a_node(fleet)).fire()
    other = await a_node(fleet, called="other")

    await go_on(fleet, [other], 3)

    assert {} == await the_ticks(fleet)


async def test_a_schedule_that_cannot_fire_holds_up_no_other(fleet):
    node, store = await a_node(fleet), await fleet.store(NoFaults())
    await node.fire()
    # Saved by a server that knows more time zones than this one.
    saved = ScheduleState("first", "count", "* * * * *", "Mars/Base", "skip", NOON)
    await store.save_schedule(replace(saved, owner=LOCAL, input="1"))

    await go_on(fleet, [node], 3)

    assert {1: 1, 2: 1, 3: 1} == await the_ticks(fleet)


@pytest.mark.parametrize("ahead", [MINUTE, 90 * MINUTE, timedelta(days=400)])
@pytest.mark.parametrize("missed", ["skip", "run_once"])
async def test_a_clock_that_was_ahead_stops_no_schedule(fleet, missed, ahead):
    node = await a_node(fleet, missed=missed)
    await node.fire()
    await go_on(fleet, [node], 2)
    await fleet.let_pass(ahead)
    await node.fire()

    await fleet.let_pass(-ahead)
    await go_on(fleet, [node], 3)

    early = {2 + ahead // MINUTE: 1}
    assert {1: 1, 2: 1, 3: 1, 4: 1, 5: 1} | early == await the_ticks(fleet)


async def test_a_clock_is_found_set_back_by_the_first_look_that_succeeds(fleet):
    is_away = False

    def away_at_times(store):
        fire = store.fire

        async def fire_or_not(firing):
            if is_away:
                raise StoreUnavailable("the store is away")
            return await fire(firing)

        return fire_or_not

    node = await a_node(fleet, weaken=away_at_times)
    await node.fire()
    await fleet.let_pass(3 * HOUR)
    await node.fire()
    await fleet.let_pass(-3 * HOUR)
    is_away = True
    with pytest.raises(StoreUnavailable):
        await node.fire()
    is_away = False

    await go_on(fleet, [node], 3)

    assert {1: 1, 2: 1, 3: 1, 180: 1} == await the_ticks(fleet)


async def test_a_schedule_that_was_paused_meanwhile_goes_on_after_a_wrong_clock(fleet):
    node, store = await a_node(fleet), await fleet.store(NoFaults())
    await node.fire()
    await fleet.let_pass(3 * HOUR)
    await node.fire()
    await store.pause_schedule("minutely", paused=True, next_at=NOON)
    await fleet.let_pass(-3 * HOUR)
    await node.fire()
    await store.pause_schedule("minutely", paused=False, next_at=NOON + MINUTE_MS)

    await go_on(fleet, [node], 3)

    assert {1: 1, 2: 1, 3: 1, 180: 1} == await the_ticks(fleet)


async def test_a_tick_that_fires_while_a_node_looks_is_no_clock_set_back(fleet):
    node, late = await a_node(fleet), await a_node(fleet)
    await node.fire()
    store, looks = late._store, []

    def followed(read):
        async def read_and_go_on(*given):
            found = await read(*given)
            looks.append(1)
            if len(looks) == 3:  # between the two reads of the look after its plan
                await go_on(fleet, [node], 1)
            return found

        return read_and_go_on

    store.read, store.read_clock = followed(store.read), followed(store.read_clock)
    await late.fire()

    _, [state] = await store.schedules()
    assert (NOON + MINUTE_MS, NOON + 2 * MINUTE_MS) == (state.last_at, state.next_at)
