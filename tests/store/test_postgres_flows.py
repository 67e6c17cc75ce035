"""Two who end, extend, retry or cancel the same things at once, on PostgreSQL."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.util import await_only

from backburner.domain.errors import StoreUnavailable
from backburner.domain.events import event
from backburner.domain.groups.batch import BatchState, Members
from backburner.domain.groups.flow import FlowState
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Change
from backburner.ports.faults import NoFaults
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres import database
from backburner.stores.postgres import store as store_module
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared import batches, groups
from backburner.stores.shared.flows import cancel
from backburner.stores.shared.reopening import reopen
from backburner.testing.broker.acts import pause
from backburner.testing.samples import (
    NOON,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import find, retry, types
from backburner.testing.store.linked import (
    BAD,
    CALLBACK,
    GOOD,
    LATER,
    Collection,
    Course,
    Hands,
    adding,
    told_of,
)

HELD_UP = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
ENDED = transitions.cancel_all("no", now=NOON + 1000)


class Held:
    """A transaction that stops before its commit, with all its locks."""

    def __init__(self):
        self._arrived, self._go = asyncio.Event(), asyncio.Event()

    def hit(self, moment):
        if moment == "advance.told":
            self.stop()

    def stop(self):
        if not self._arrived.is_set():
            self._arrived.set()
            await_only(self._go.wait())

    def after(self, body):
        """Return a body that stops when it is done."""

        def held(tx):
            answer = body(tx)
            self.stop()
            return answer

        return held

    async def arrived(self):
        await self._arrived.wait()

    def go(self):
        self._go.set()


@pytest.fixture(params=[True, False], ids=["at_once", "one_by_one"])
async def open_store(migrated_url, monkeypatch, request):
    """Open stores that settle steps by a function, or by a statement each."""
    if not request.param:
        monkeypatch.setattr(store_module, "advance_flows", lambda _: None)
    async with AsyncExitStack() as stack:

        async def open_one(**options):
            store = PostgresStore(migrated_url, **{"faults": NoFaults(), **options})
            await store.open()
            stack.push_async_callback(store.close)
            return store

        enlisting = await open_one()
        await enlisting.enlist(
            WorkerInfo("w_1", "here", 1, 8, ("default",), started_at=NOON)
        )
        yield open_one


@pytest.fixture
def held():
    return Held()


@pytest.fixture
async def one(open_store, held):
    """A store whose linked settlements stop before they commit, once."""
    return await open_store(faults=held)


@pytest.fixture
async def other(open_store):
    return await open_store()


@pytest.fixture
async def watcher(migrated_url):
    connection = await asyncpg.connect(migrated_url)
    yield connection
    await connection.close()


@pytest.fixture
def at_once(held, watcher):
    """Run a second call while the first one is held open; return both answers."""

    async def at_once(first, second, *, waits=True):
        first = asyncio.ensure_future(first)
        async with asyncio.timeout(60):
            await held.arrived()
            second = asyncio.ensure_future(second)
            while not second.done() and not await watcher.fetchval(HELD_UP):
                await pause()
            was_done = second.done()
            held.go()
            answers = await asyncio.gather(first, second)
        assert waits != was_done, "the second one waits for the first"
        return answers

    return at_once


async def begin(store, *steps, **fields):
    hands = Hands(store)
    [submitted] = await store.submit_flows([a_new_flow(*steps, **fields)])
    await hands.take()
    return Course(hands, submitted.id), hands


async def settlements(course, hands, outcomes):
    jobs = await course.jobs()
    return [
        await hands.settlement(jobs[name].id, outcome)
        for name, outcome in outcomes.items()
    ]


async def open_a_batch(store, *jobs, **fields):
    hands, batch = Hands(store), a_new_batch(**fields)
    await store.open_batch(batch, Members(jobs))
    return Collection(hands, batch.id), hands


def counted_from_before(statement, counter):
    """Have a counter lowered from what was seen before the wait for its row."""
    table, column = counter.split(".")
    seen = (
        f"(SELECT seen.{column} FROM {table} AS seen"  # noqa: S608 - ours
        f" WHERE seen.seq = {table}.seq)"
    )
    queries = unlocked()
    written, returning, returned = getattr(queries, statement).partition("RETURNING")
    assert counter in written
    blind = written.replace(counter, seen) + returning + returned
    return replace(queries, **{statement: blind})


def unlocked():
    """Have nobody wait for a flow before it comes to that flow's counter."""
    queries = Queries.load()
    return replace(queries, lock_flows=queries.lock_flows.replace("FOR UPDATE", ""))


def do_not_lock(monkeypatch):
    monkeypatch.setattr(sa.Select, "with_for_update", lambda query, **_: query)


@pytest.mark.parametrize("late", [GOOD, BAD], ids=["good", "bad"])
@pytest.mark.parametrize("early", [GOOD, BAD], ids=["good", "bad"])
async def test_the_last_two_prerequisites_end_at_once(one, other, at_once, early, late):
    course, hands = await begin(
        other, a_new_step("a"), a_new_step("b"), a_new_step("c", "a", "b")
    )
    first, second = await settlements(course, hands, {"a": early, "b": late})

    await at_once(one.settle([first]), other.settle([second]))

    job = (await course.jobs())["c"]
    is_released = early is late is GOOD
    ended = event.QUEUED if is_released else event.CANCELLED
    assert [event.BLOCKED, ended] == await types(other, job.id)
    flow = await course.flow()
    assert (FlowState.RUNNING if is_released else FlowState.FAILED) is flow.state


async def test_a_step_that_is_counted_from_before_is_never_released(
    open_store, held, other, at_once
):
    blind = counted_from_before("release_jobs", "jobs.open")
    course, hands = await begin(
        other, a_new_step("a"), a_new_step("b"), a_new_step("c", "a", "b")
    )
    first, second = await settlements(course, hands, {"a": GOOD, "b": GOOD})
    one = await open_store(faults=held, queries=unlocked())
    two = await open_store(queries=blind)

    await at_once(one.settle([first]), two.settle([second]))

    assert JobState.BLOCKED is (await course.states())["c"]


@pytest.mark.parametrize("late", [GOOD, BAD], ids=["good", "bad"])
async def test_the_last_two_steps_end_at_once(one, other, at_once, late):
    course, hands = await begin(
        other, a_new_step("a"), a_new_step("b"), callback=CALLBACK
    )
    first, second = await settlements(course, hands, {"a": GOOD, "b": late})

    await at_once(one.settle([first]), other.settle([second]))

    state = "flow.succeeded" if late is GOOD else "flow.failed"
    assert [event.FLOW_STARTED, state] == [e.type for e in await course.events()]
    assert [(state, 0)] == await told_of(other, (await course.flow()).id)


async def test_a_flow_that_is_counted_from_before_never_ends(
    open_store, held, other, at_once
):
    blind = counted_from_before("count_down_flows", "flows.active")
    course, hands = await begin(other, a_new_step("a"), a_new_step("b"))
    first, second = await settlements(course, hands, {"a": GOOD, "b": GOOD})
    one = await open_store(faults=held, queries=unlocked())
    two = await open_store(queries=blind)

    await at_once(one.settle([first]), two.settle([second]))

    assert FlowState.RUNNING is (await course.flow()).state


@pytest.mark.parametrize("is_first", [True, False], ids=["settle", "retry"])
async def test_the_last_step_ends_while_a_failed_one_is_retried(
    one, other, held, at_once, is_first
):
    course, hands = await begin(
        other, a_new_step("a"), a_new_step("b", "a"), a_new_step("last")
    )
    await course.fail("a")
    [ended] = await settlements(course, hands, {"last": GOOD})
    move = retry((await course.jobs())["a"])

    if is_first:
        _, held_up = await at_once(one.settle([ended]), other.reopen([move]))
    else:
        body = held.after(lambda tx: reopen(tx, [move], fresh=False))
        held_up, _ = await at_once(
            one.internal_transaction(body), other.settle([ended])
        )

    assert [True] == list(held_up)
    assert {"a": "queued", "b": "blocked", "last": "succeeded"} == await course.states()
    flow = await course.flow()
    assert (FlowState.RUNNING, int(is_first)) == (flow.state, flow.generation)
    await course.end("a")
    await course.end("b")
    assert FlowState.SUCCEEDED is (await course.flow()).state
    assert 1 + 2 * is_first + 1 == (await course.flow()).events


@pytest.mark.parametrize("is_first", [True, False], ids=["settle", "extend"])
async def test_a_prerequisite_ends_while_a_step_is_put_after_it(
    one, other, at_once, is_first
):
    course, hands = await begin(other, a_new_step("a"), a_new_step("b"))
    first, second = await settlements(course, hands, {"a": GOOD, "b": GOOD})
    added = a_new_step("c", "a", "b")
    adds = first._replace(body=adding((await course.flow()).seq, added))

    if is_first:
        await at_once(one.settle([second]), other.settle([adds]))
    else:
        await at_once(one.settle([adds]), other.settle([second]))

    assert JobState.QUEUED is (await course.states())["c"]


async def test_without_its_flow_s_lock_a_prerequisite_is_waited_for_without_end(
    open_store, held, at_once
):
    one = await open_store(faults=held, queries=unlocked())
    other = await open_store(queries=unlocked())
    course, hands = await begin(other, a_new_step("a"), a_new_step("b"))
    first, second = await settlements(course, hands, {"a": GOOD, "b": GOOD})
    added = a_new_step("c", "a", "b")
    adds = first._replace(body=adding((await course.flow()).seq, added))

    await at_once(one.settle([adds]), other.settle([second]))

    assert JobState.BLOCKED is (await course.states())["c"]


async def test_a_step_is_put_after_two_that_end_in_one_transaction(other):
    course, hands = await begin(
        other, a_new_step("a"), a_new_step("b"), a_new_step("late")
    )
    first, second = await settlements(course, hands, {"a": GOOD, "b": GOOD})
    adds = adding((await course.flow()).seq, a_new_step("c", "a", "b", "late"))

    await other.settle(
        [first._replace(body=adds), second._replace(body=lambda _tx: None)]
    )
    before = (await course.states())["c"]
    await course.end("late")

    assert (JobState.BLOCKED, JobState.QUEUED) == (before, (await course.states())["c"])


@pytest.mark.parametrize("is_first", [True, False], ids=["settle", "cancel"])
async def test_a_step_ends_while_its_flow_is_cancelled(
    one, other, held, at_once, is_first
):
    course, hands = await begin(other, a_new_step("a"), a_new_step("b", "a"))
    [ended] = await settlements(course, hands, {"a": GOOD})
    seq = (await course.flow()).seq

    if is_first:
        [applied], count = await at_once(
            one.settle([ended]), other.cancel_flow(seq, ENDED)
        )
    else:
        body = held.after(cancel(ENDED, flow=seq))
        count, [applied] = await at_once(
            one.internal_transaction(body), other.settle([ended])
        )

    assert (ended.change, 1) == (applied, count) if is_first else (None, 2)
    assert JobState.CANCELLED is (await course.states())["b"]
    assert FlowState.CANCELLED is (await course.flow()).state
    assert 2 == len(await course.events())


async def test_what_is_added_while_a_flow_is_cancelled_is_cancelled_too(
    one, other, at_once
):
    course, hands = await begin(other, a_new_step("a"), a_new_step("b"))
    [ended] = await settlements(course, hands, {"a": GOOD})
    seq = (await course.flow()).seq
    body = adding(seq, a_new_step("c", "a"), a_new_step("d", "c"))

    _, count = await at_once(
        one.settle([ended._replace(body=body)]), other.cancel_flow(seq, ENDED)
    )

    assert 3 == count
    states = await course.states()
    assert {JobState.CANCELLED} == {states[name] for name in "bcd"}
    assert FlowState.CANCELLED is (await course.flow()).state


async def test_what_is_added_while_a_flow_is_reopened_is_seen(one, other, at_once):
    course, hands = await begin(
        other,
        a_new_step("bad"),
        a_new_step("a"),
        a_new_step("join", "a"),
    )
    await course.fail("bad")
    [ended] = await settlements(course, hands, {"a": BAD})
    added = a_new_step("new", "a", before=["join"])
    body = adding((await course.flow()).seq, added)
    move = retry((await course.jobs())["bad"])

    _, held_up = await at_once(
        one.settle([ended._replace(body=body)]), other.reopen([move])
    )

    assert [True] == list(held_up)
    await course.retry("a")
    for name in ("a", "new", "join", "bad"):
        await course.end(name)
    assert FlowState.SUCCEEDED is (await course.flow()).state


async def test_what_is_added_while_a_flow_is_reopened_is_held_until_then(
    one, other, at_once, watcher
):
    course, hands = await begin(other, a_new_step("bad"), a_new_step("a"))
    await course.fail("bad")
    [ended] = await settlements(course, hands, {"a": GOOD})
    seq = (await course.flow()).seq
    move = retry((await course.jobs())["bad"])
    locked = []

    def look(tx):
        reopen(tx, [move], fresh=False)
        step = "SELECT 1 FROM jobs WHERE step = 'new' FOR UPDATE NOWAIT"
        try:
            await_only(watcher.fetchval(step))
        except asyncpg.LockNotAvailableError:
            locked.append("new")

    await at_once(
        one.settle([ended._replace(body=adding(seq, a_new_step("new")))]),
        other.internal_transaction(look),
    )

    assert ["new"] == locked, "it could end before it is counted"


@pytest.mark.parametrize("seal", [True, False])
async def test_a_batch_is_filled_while_somebody_would_end_it(
    one, other, held, at_once, seal
):
    batch, hands = await open_a_batch(other, sealed=False)
    job = a_new_job()
    body = held.after(batches.fill(await batch.seq(), Members([job]), seal=seal))

    _, is_over = await at_once(one.internal_transaction(body), batch.finish())

    assert not is_over
    if not seal:
        await batch.fill(Members(), seal=True)
    await hands.end(job.id)
    assert await batch.finish()


@pytest.mark.parametrize("is_first", [True, False], ids=["finish", "retry"])
async def test_a_batch_ends_while_a_member_is_retried(
    one, other, held, at_once, is_first
):
    job = a_new_job()
    batch, hands = await open_a_batch(other, job, callback=CALLBACK)
    await hands.end(job.id, outcome=BAD)
    move = retry(await find(other, job.id))
    finish = batches.finish(await batch.seq(), LATER, lambda *_: ())

    if is_first:
        is_over, _ = await at_once(
            one.internal_transaction(held.after(finish)), other.reopen([move])
        )
    else:
        body = held.after(lambda tx: reopen(tx, [move], fresh=False))
        _, is_over = await at_once(one.internal_transaction(body), batch.finish())

    found = await batch.batch()
    assert is_first == is_over
    assert (BatchState.OPEN, int(is_first)) == (found.state, found.generation)
    await hands.end(job.id)
    assert await batch.finish()
    told = await told_of(other, found.id)
    assert [("batch.finished", n) for n in range(1 + is_first)] == told


async def test_a_batch_that_is_not_locked_ends_with_something_left_to_do(
    one, other, held, at_once, monkeypatch
):
    do_not_lock(monkeypatch)
    job = a_new_job()
    batch, hands = await open_a_batch(other, job)
    await hands.end(job.id, outcome=BAD)
    move = retry(await find(other, job.id))
    counted = batches.counts

    def count(*asked):
        answer = counted(*asked)
        held.stop()
        return answer

    monkeypatch.setattr(batches, "counts", count)
    finish = batches.finish(await batch.seq(), LATER, lambda *_: ())
    await at_once(one.internal_transaction(finish), other.reopen([move]), waits=False)

    assert JobState.QUEUED is (await find(other, job.id)).state
    assert BatchState.FINISHED is (await batch.batch()).state


async def test_a_batch_that_is_being_reopened_does_not_end(
    one, other, held, at_once, monkeypatch
):
    job = a_new_job()
    batch, hands = await open_a_batch(other, job)
    await hands.end(job.id, outcome=BAD)
    move = retry(await find(other, job.id))
    opened = groups.reopen

    def stop_before(*asked):
        held.stop()
        opened(*asked)

    monkeypatch.setattr(groups, "reopen", stop_before)
    await at_once(
        one.internal_transaction(lambda tx: reopen(tx, [move], fresh=False)),
        batch.finish(),
    )

    found = await batch.batch()
    assert (BatchState.OPEN, 0) == (found.state, found.generation)


async def test_a_join_is_counted_down_while_a_step_before_it_adds_others(
    one, other, held, at_once, monkeypatch
):
    monkeypatch.setattr(database, "TRIES", 1)
    course, hands = await begin(
        other, a_new_step("a"), a_new_step("b"), a_new_step("join", "a", "b")
    )
    first, second = await settlements(course, hands, {"a": GOOD, "b": GOOD})
    body = held.after(adding((await course.flow()).seq, a_new_step("c", "a")))

    answers = await at_once(
        one.settle([first._replace(body=body)]), other.settle([second])
    )

    assert [[first.change], [second.change]] == answers
    assert {"join": "queued", "c": "queued"} == {
        name: state
        for name, state in (await course.states()).items()
        if name in {"join", "c"}
    }


LOCK = sa.text("SELECT pg_advisory_xact_lock(:n)")


class Crossing:
    """Bodies that lock two things of an application, each in its own order."""

    def __init__(self):
        self._barrier = asyncio.Barrier(2)
        self._seen = set()

    def body(self, first, second):
        def cross(tx):
            tx.connection.execute(LOCK, {"n": first})
            if first not in self._seen:
                self._seen.add(first)
                await_only(self._barrier.wait())
            tx.connection.execute(LOCK, {"n": second})

        return cross


async def cross(hands, store):
    """Have two jobs wait for each other in a circle, by what their bodies do."""
    one, two = a_new_job(), a_new_job()
    await store.submit([one, two])
    await hands.take()
    crossing = Crossing()
    first = await hands.settlement(one.id, GOOD)
    second = await hands.settlement(two.id, GOOD)
    return await asyncio.gather(
        store.settle([first._replace(body=crossing.body(1, 2))]),
        store.settle([second._replace(body=crossing.body(2, 1))]),
        return_exceptions=True,
    )


async def test_two_that_wait_in_a_circle_both_get_there(other):
    answers = await cross(Hands(other), other)

    assert [Change] * 2 == [type(change) for (change,) in answers]


async def test_without_another_try_one_of_them_does_not(other, monkeypatch):
    monkeypatch.setattr(database, "TRIES", 1)

    answers = await cross(Hands(other), other)

    assert [StoreUnavailable] == [
        type(answer) for answer in answers if not isinstance(answer, Sequence)
    ]


async def test_flows_with_the_same_keys_in_another_order_are_stored_once(other):
    def keyed(key):
        return a_new_flow(a_new_step("a"), idempotency_key=key, body_hash="h")

    rounds = [
        asyncio.gather(
            other.submit_flows([keyed(f"x{n}"), keyed(f"y{n}")]),
            other.submit_flows([keyed(f"y{n}"), keyed(f"x{n}")]),
        )
        for n in range(20)
    ]
    for answers in await asyncio.gather(*rounds):
        [x, y], [also_y, also_x] = answers
        assert (x.id, y.id) == (also_x.id, also_y.id)


async def test_many_rounds_release_and_end_each_thing_once(open_store):
    one, other = await open_store(), await open_store()
    flows = [
        a_new_flow(a_new_step("a"), a_new_step("b"), a_new_step("c", "a", "b"))
        for _ in range(60)
    ] + [a_new_flow(a_new_step("a"), a_new_step("b")) for _ in range(60)]
    await one.submit_flows(flows)
    hands = Hands(one)
    asked = [
        await settlements(Course(hands, flow.id), hands, {"a": GOOD, "b": GOOD})
        for flow in flows
    ]

    await asyncio.gather(
        *(one.settle([first]) for first, _ in asked),
        *(other.settle([second]) for _, second in asked),
    )

    courses = [Course(hands, flow.id) for flow in flows]
    released = [(await course.jobs())["c"] for course in courses[:60]]
    assert {(JobState.QUEUED, 2)} == {(job.state, job.events) for job in released}
    ended = [await course.flow() for course in courses[60:]]
    assert {(FlowState.SUCCEEDED, 2)} == {(flow.state, flow.events) for flow in ended}
