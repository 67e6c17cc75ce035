"""Transactions take locks in the documented order; whoever swaps two is found out."""

import asyncio
from itertools import count, pairwise

import asyncpg
import pytest

from backburner.domain.costs.budget import Budget
from backburner.domain.groups.batch import Members
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Owner
from backburner.domain.queues.queue import Queue
from backburner.ports.faults import NoFaults
from backburner.ports.store.budgets import HoldRequest, Viewer
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres import statements
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared import sharing
from backburner.testing.samples import (
    NOON,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import find, retry
from backburner.testing.store.linked import (
    BAD,
    GOOD,
    Collection,
    Course,
    Hands,
    adding,
)
from tests.lock_order import documented, recording

DAY_MS = 24 * 60 * 60 * 1000

ORDER = documented()
LOADED = Queries.load()
TAKEN = {
    "schedule": ("UPDATE schedules SET next_at = 0 WHERE name = 'x'",),
    "mark": ("UPDATE marks SET at = 1 WHERE name = 'x'",),
    "batch": (LOADED.lock_batches, [1]),
    "flow": (LOADED.lock_flows, [1]),
    "queue": (LOADED.lock_gate, "x"),
    "worker": ("SELECT id FROM workers WHERE id = 'w_2' FOR KEY SHARE",),
    "job": (LOADED.lock_jobs, [1]),
    "blocked step": (LOADED.cancel_dependents, [1], 0, "", ""),
    "front": ("INSERT INTO fronts VALUES ('x', 0, 0) ON CONFLICT DO NOTHING",),
    "name": (LOADED.lock_name, "hold\nx"),
    "cap": (LOADED.lock_name, "default\nacme\nann"),
    "account": (LOADED.post_accounts, [1], [0], [0], [0]),
}
"""A statement that takes each kind of lock."""


@pytest.fixture
async def session(migrated_url):
    connection = await asyncpg.connect(migrated_url)
    await connection.execute(
        "INSERT INTO workers VALUES ('w_2', 'here', 1, 1, '', 0, 0)"
    )
    yield connection
    await connection.close()


@pytest.fixture
async def open_store(migrated_url):
    opened = []

    async def open_one():
        store = PostgresStore(migrated_url, faults=NoFaults())
        await store.open()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store):
    store = await open_store()
    await store.enlist(WorkerInfo("w_1", "here", 1, 99, ("default",), NOON))
    await store.declare([Queue("default", waiting=1000)])
    await store.put_budgets(
        [Budget(scope, tokens=10_000) for scope in ("user", "tenant", "capability")]
    )
    store.rulebook.forget()
    return store


async def take(session, *kinds):
    async with session.transaction():
        for kind in kinds:
            await session.fetch(*TAKEN[kind])


def test_every_kind_of_lock_has_its_control():
    assert {*ORDER} == {*TAKEN}


@pytest.mark.parametrize(("first", "second"), [*pairwise(ORDER)])
async def test_two_kinds_of_locks_in_the_wrong_order_are_found(session, first, second):
    before = ["flow"] if first == "blocked step" or second == "blocked step" else []
    before = [kind for kind in before if kind not in {first, second}]
    with recording() as right:
        await take(session, *before, first, second)
    with recording() as wrong:
        await take(session, *before, second, first)

    assert [] == right.inversions
    assert [f"{first} after {second}"] == [
        told.partition(":")[0] for told in wrong.inversions
    ] or wrong.inversions[0].startswith("blocked step without its flow")


@pytest.mark.parametrize(
    "statement", [LOADED.lock_batches, LOADED.lock_flows, LOADED.lock_jobs]
)
async def test_keys_in_the_wrong_order_are_found(session, statement):
    with recording() as recorder:
        for keys in ([1, 2], [2, 1]):
            async with session.transaction():
                for key in keys:
                    await session.fetch(statement, [key])

    assert 1 == len(recorder.inversions)


async def extended(store):
    """A step adds others with budgets and a cap, one before a step that waits."""
    hands = Hands(store)
    steps = [a_new_step("a", tokens=5), a_new_step("z", "a", tokens=5)]
    [answer] = await store.submit_flows([a_new_flow(*steps)])
    await hands.take()
    course = Course(hands, answer.id)
    settlement = await hands.settlement((await course.jobs())["a"].id, GOOD)
    adds = adding(
        (await course.flow()).seq, a_new_step("b", "a", tokens=5, before=["z"])
    )
    await store.settle([settlement._replace(body=adds)])


async def mixed(store):
    """One job fails and the next one, with a smaller key, succeeds."""
    hands = Hands(store)
    jobs = [a_new_job(tokens=5) for _ in range(2)]
    await store.submit(jobs)
    await hands.take()
    ends = zip(jobs, (BAD, GOOD), strict=True)
    await store.settle([await hands.settlement(job.id, end) for job, end in ends])


async def retried(store):
    """A member of a batch is retried."""
    hands, batch, job = Hands(store), a_new_batch(), a_new_job(tokens=5)
    await store.open_batch(batch, Members([job]))
    await hands.take()
    await hands.end(job.id, outcome=BAD)
    await Collection(hands, batch.id).finish()
    await store.reopen([retry(await find(store, job.id))])


async def cancelled(store):
    """A batch of jobs and flows is cancelled."""
    batch = a_new_batch()
    flows = [a_new_flow(a_new_step("a", tokens=5), a_new_step("b", "a"))]
    await store.open_batch(batch, Members([a_new_job(tokens=5)], flows))
    [found] = await store.find_batches([batch.id])
    await store.cancel_batch(found.seq, transitions.cancel_all("no", now=NOON))


async def submitted(store):
    """A body submits twice: shares and budgets in no order."""

    def body(tx):
        for user, priority in (("bob", 1), ("ann", 2), ("carl", 0)):
            job = a_new_job(tokens=5, owner=Owner("acme", user), priority=priority)
            tx.submit([job])

    await store.transact(body)


async def filled(store):
    """Members fill their batch, which somebody else holds for a while."""
    hands, batch, job = Hands(store), a_new_batch(sealed=False), a_new_job(tokens=5)
    await store.open_batch(batch, Members([job]))
    claim, seq = (await hands.take())[job.id], await Collection(hands, batch.id).seq()

    def more(tx):
        tx.submit([a_new_job(idempotency_key="k")])
        tx.fill_batch(seq, Members([a_new_job(tokens=5)]), seal=False)
        tx.open_batch(a_new_batch(idempotency_key="b"), Members([a_new_job()]))

    await asyncio.gather(
        *(store.transact(more, claim=claim, seconds=60) for _ in range(4)),
        *(store.fill_batch(seq, Members([a_new_job()]), seal=False) for _ in range(4)),
    )


WORKLOADS = [extended, mixed, retried, cancelled, submitted, filled]


@pytest.mark.parametrize("workload", WORKLOADS)
async def test_transactions_take_their_locks_in_order(store, workload):
    with recording() as recorder:
        await workload(store)

    assert [] == recorder.inversions
    assert recorder.pairs, "some transaction took more than one kind"


def ledger_at_once(monkeypatch):
    """Hold and post as the transaction goes along."""
    begin = statements.Transaction.__init__

    def init(self, *args):
        begin(self, *args)
        deferred = self.deferred
        monkeypatch.setattr(statements.ledger, "finish", lambda _: None)
        self.deferred = AtOnce(self, deferred)

    monkeypatch.setattr(statements.Transaction, "__init__", init)


class AtOnce:
    """What is deferred, but for the ledger's."""

    def __init__(self, tx, deferred):
        self._tx, self._deferred = tx, deferred

    def __getattr__(self, name):
        return getattr(self._deferred, name)

    def add(self, acts):
        acts = [*acts]
        if acts and type(acts[0]) is not statements._Capped:
            statements.ledger._carry_out(self._tx, acts)
        else:
            self._deferred.add(acts)


def caps_by_priority(monkeypatch):
    def check(self, added):
        shares = {share for caps, _ in added for share in caps}
        for share in sorted(shares, key=lambda share: share.priority):
            self.rows(self.queries.lock_name, "\n".join(sharing.capped(share)))

    monkeypatch.setattr(statements.Transaction, "_check_caps", check)


def jobs_by_outcome(monkeypatch):
    monkeypatch.setattr(statements, "_needs_several_statements", lambda _: False)


def groups_last(monkeypatch):
    monkeypatch.setattr(statements.Transaction, "lock_groups", lambda *_, **__: None)


def fills_waiting(monkeypatch):
    monkeypatch.setattr(statements.Transaction, "lock_batch", lambda *_: None)


SWAPS = [
    (fills_waiting, filled),
    (ledger_at_once, submitted),
    (ledger_at_once, extended),
    (caps_by_priority, submitted),
    (jobs_by_outcome, mixed),
    (groups_last, extended),
    (groups_last, retried),
    (groups_last, cancelled),
]


@pytest.mark.parametrize(("swap", "workload"), SWAPS)
async def test_the_order_that_was_is_found(store, monkeypatch, swap, workload):
    swap(monkeypatch)
    with recording() as recorder:
        await workload(store)

    assert recorder.inversions


async def test_a_worker_that_is_declared_dead_meanwhile_claims_nothing(store, session):
    """Its row is there when the claim looks for limits, and gone when it takes jobs."""
    await store.declare([Queue("default", concurrency=5)])
    await store.submit([a_new_job()])
    looked, looks = LOADED.list_gates, []
    pipe = store._claiming
    rows = pipe.rows

    async def buried_after_the_look(statement, *parameters):
        found = await rows(statement, *parameters)
        if statement == looked and found:
            await session.execute("DELETE FROM workers")
            looks.append(statement)
        return found

    pipe.rows = buried_after_the_look
    claims = await store.claim("w_1", "t_1", [ClaimRequest("default", 5)], now=NOON)

    assert ([], [looked]) == (list(claims), looks)


async def test_reservations_of_one_id_at_once_hold_once(store):
    ask = HoldRequest("hold_1", Owner("acme", "ann"), NOON, tokens=70)

    answers = await asyncio.gather(*(store.reserve(ask) for _ in range(8)))

    held = {state.balance.held for state in await store.accounts(Viewer(), limit=9)}
    assert 1 == len({*answers})
    assert {70} == held


async def test_reservations_of_one_id_hold_once_where_a_window_ends_between_them(
    store, session, monkeypatch
):
    ask = HoldRequest("hold_1", Owner("acme", "ann"), NOON, tokens=70)
    days = count()
    monkeypatch.setattr(
        statements.Transaction, "now", lambda _: NOON + next(days) * DAY_MS
    )

    answers = await asyncio.gather(*(store.reserve(ask) for _ in range(8)))

    held = await session.fetch("SELECT held, window_at FROM accounts WHERE held > 0")
    assert 1 == len({*answers})
    assert [70, 70] == [row["held"] for row in held], "of the user and of the tenant"
    assert 1 == len({row["window_at"] for row in held})
