"""The lists of a small owner read its own rows, however many rows others have."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.domain.groups.batch import BatchState
from backburner.domain.jobs.job import JobState, Owner, Tenant
from backburner.ports.faults import NoFaults
from backburner.ports.store.flows import GroupFilter
from backburner.ports.store.maintenance import JobFilter, Retention
from backburner.stores.shared import (
    activity,
    batches,
    dead_letters,
    erasure,
    flows,
    listing,
    paging,
    prospects,
    retention,
)
from backburner.testing.samples import a_job
from tests import homes
from tests.plans import plans, rows_of

pytestmark = pytest.mark.parametrize("store_url", homes.STORES, indirect=True)

OTHERS = 20_000
"""How many jobs others have; a list may look at a quarter as many rows at most."""
ANN, TINY, LARGE = Owner("acme", "ann"), Tenant("tiny"), Tenant("acme")
MINE = """
INSERT INTO flows (seq, id, tenant, "user", state, created_at, active, troubled, steps)
VALUES (1, 'flow_a', 'acme', 'ann', 'running', 1, 1, FALSE, 1),
       (2, 'flow_t', 'tiny', 'tim', 'running', 1, 1, FALSE, 1);
INSERT INTO batches (id, tenant, "user", state, created_at, sealed, told, told_at)
VALUES ('batch_a', 'acme', 'ann', 'open', 1, FALSE, 0, 0),
       ('batch_t', 'tiny', 'tim', 'open', 1, FALSE, 0, 0);
INSERT INTO queues (name, paused, per, window_at, started, closed, told, keep)
VALUES ('brief', FALSE, 0, 0, 0, 0, 0, '[null,null,1,1]');
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, finished_at, input, output, kept)
VALUES ('job_1', 'tiny', 'tim', 'greet', 'brief', 'succeeded', 0, 1, 3, 1, 1, 5, '{}',
        '1', 1),
       ('job_2', 'tiny', 'tim', 'greet', 'brief', 'succeeded', 0, 1, 3, 1, 1, 6, '{}',
        '1', 2);
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, finished_at, input, output,
                  fingerprint, error_code, flow, step, tags)
SELECT 'job_' || "user" || state, tenant, "user", 'greet', 'default', state, 0, 1, 3,
       1, 1, at, '{}', '1', fingerprint, 'code',
       CASE WHEN state = 'blocked' THEN flow END,
       CASE WHEN state = 'blocked' THEN 's' END, 'one'
  FROM (SELECT 'acme' AS tenant, 'ann' AS "user", 1 AS flow
         UNION ALL SELECT 'tiny', 'tim', 2) AS o,
       (SELECT 'failed' AS state, 6 AS at, 'f1' AS fingerprint
         UNION ALL SELECT 'succeeded', 5, NULL
         UNION ALL SELECT 'queued', NULL, NULL
         UNION ALL SELECT 'blocked', NULL, NULL) AS s;
INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, 1, 'job.queued', 1, tenant, "user" FROM jobs
"""
THEIRS = """
INSERT INTO flows (seq, id, tenant, "user", state, created_at, active, troubled, steps)
SELECT n + 2, 'flow_' || n, 'acme', 'user' || n % 100, 'running', n, 1, FALSE, 1 FROM n;
INSERT INTO batches (id, tenant, "user", state, created_at, sealed, told, told_at)
SELECT 'batch_' || n, 'acme', 'user' || n % 100, 'open', n, FALSE, 0, 0 FROM n;
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, finished_at, input, output,
                  fingerprint, error_code, flow, step, tags)
SELECT 'job__' || n, 'acme', 'user' || n % 100, 'greet', 'default',
       CASE n % 4 WHEN 0 THEN 'queued' WHEN 1 THEN 'failed' WHEN 2 THEN 'blocked'
                  ELSE 'succeeded' END, 0, n, 3, n, n,
       CASE WHEN n % 2 = 1 THEN n END, '{}', '1', CASE WHEN n % 4 = 1 THEN 'f1' END,
       'code', CASE WHEN n % 4 = 2 THEN n + 2 END, CASE WHEN n % 4 = 2 THEN 's' END,
       'two'
  FROM n;
INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, 1, 'job.queued', 1, tenant, "user" FROM jobs
 WHERE id IN (SELECT 'job__' || n FROM n);
INSERT INTO entries (at, account, hold, kind, amount)
SELECT n, 1, n, 'released', 1 FROM n
"""
NUMBERS = f"""
CREATE TEMPORARY TABLE n AS WITH RECURSIVE n (n) AS (
  SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {OTHERS}
) SELECT n FROM n
"""  # noqa: S608 - a constant of this file


def in_state(state, **more):
    return JobFilter(ANN, state=JobState(state), **more)


HOUR = JobFilter(LARGE, tag="none", since=9_000, until=9_100)
"""Half way through the jobs of others, which are a millisecond apart."""
LIVE = frozenset({JobState.SCHEDULED, JobState.RUNNING})


def jobs(where):
    return lambda c: listing.jobs(c, where, None, 2)


LISTS = {
    "jobs": jobs(JobFilter(ANN)),
    "page": lambda c: listing.jobs(c, JobFilter(ANN), OTHERS, 2),
    "count": lambda c: listing.count(c, JobFilter(ANN)),
    "tag": jobs(JobFilter(ANN, tag="none")),
    "metadata": jobs(JobFilter(ANN, metadata={"order": "none"})),
    "capability": jobs(JobFilter(ANN, capability="none")),
    "queued": jobs(in_state("queued")),
    "queued, walked": lambda c: listing.walk(
        c, in_state("queued", oldest_first=True), None, 2, 100
    ),
    "queued, counted": lambda c: listing.count_within(c, in_state("queued"), 9, 100),
    "succeeded": jobs(in_state("succeeded", tag="none")),
    "cancelled": jobs(in_state("cancelled")),
    "failed": jobs(in_state("failed")),
    "fingerprint": jobs(in_state("failed", fingerprint="f1")),
    "blocked": jobs(in_state("blocked")),
    "running": jobs(in_state("running")),
    "failures": lambda c: dead_letters.failures(c, ANN, 9),
    "unfinished": lambda c: erasure._unfinished(c, ANN, 9),
    "erasable": lambda c: erasure._erasable(c, ANN, 9),
    "flows": lambda c: flows.listing(c, GroupFilter(ANN), None, 2),
    "flows by tag": lambda c: flows.listing(c, GroupFilter(ANN, tag="no"), None, 2),
    "batches": lambda c: batches.listing(c, GroupFilter(ANN), None, 2),
    "open batches": lambda c: batches.listing(
        c, GroupFilter(ANN, state=BatchState.OPEN, tag="no"), None, 2
    ),
    "tenant": jobs(JobFilter(TINY)),
    "tenant's failed": jobs(JobFilter(TINY, state=JobState.FAILED)),
    "tenant's blocked": jobs(JobFilter(TINY, state=JobState.BLOCKED)),
    "tenant's failures": lambda c: dead_letters.failures(c, TINY, 9),
    "tenant's flows": lambda c: flows.listing(c, GroupFilter(TINY), None, 2),
    "tenant's batches": lambda c: batches.listing(c, GroupFilter(TINY), None, 2),
    "large tenant": jobs(JobFilter(LARGE)),
    "large tenant's flows": lambda c: flows.listing(c, GroupFilter(LARGE), None, 2),
    "large tenant's hour": lambda c: listing.walk(c, HOUR, None, 9, 100),
    "large tenant's hour, counted": lambda c: listing.count_within(c, HOUR, 9, 100),
    "owner's hour": lambda c: listing.walk(c, replace(HOUR, owner=ANN), None, 9, 100),
    "live states": lambda c: listing.count_within(
        c,
        JobFilter(LARGE, states=LIVE, capability="none"),
        9,
        100,
    ),
    "backlog": lambda c: listing.walk(
        c, JobFilter(LARGE, state=JobState.QUEUED, capability="none"), None, 9, 100
    ),
    "backlog, counted": lambda c: listing.count_within(
        c, JobFilter(LARGE, states=LIVE | {JobState.QUEUED}, queue="none"), 9, 100
    ),
    "activity": lambda c: activity._activity(c, ANN, 9_000),
    "what a queue keeps": lambda c: retention.prune_jobs(Retention(), 9, 9)(
        SimpleNamespace(connection=c)
    ),
    "flows that queues keep": lambda c: retention.prune_flows(Retention(), 9, 9)(
        SimpleNamespace(connection=c)
    ),
    "receipt": lambda c: prospects._closing(
        c, a_job(seq=1, generation=1, callback="{}", finished_at=9, owner=ANN)
    ),
}


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(paging, "WINDOW", 100)
    monkeypatch.setattr(listing, "CLOCKS_AGREE_MS", 0)
    monkeypatch.setattr(activity, "CLOCKS_AGREE_MS", 0)


@pytest.fixture
async def store(store_url):
    store = find_store(store_url, SystemClock(), NoFaults())
    await store.open()
    yield store
    await store.close()


async def fill(store, statements):
    def body(tx):
        for statement in statements.split(";"):
            tx.connection.execute(sa.text(statement))

    await store.transact(body)


def visits(connection, read):
    """Count what a read costs: rows on PostgreSQL, steps of its program on SQLite."""
    if connection.dialect.name == "postgresql":
        return sum(rows_of(plan) for plan in plans(connection, read))
    steps = 0

    def step():
        nonlocal steps
        steps += 1

    driver = connection.connection.driver_connection
    driver.set_progress_handler(step, 1)
    read(connection)
    driver.set_progress_handler(None, 1)
    return steps


def analyze(tx):
    """Gather statistics, as the server does by itself; SQLite goes by its indexes."""
    if tx.connection.dialect.name == "postgresql":
        tx.connection.execute(sa.text("ANALYZE"))


async def measured(store):
    return {n: await store.read(lambda c, r=r: visits(c, r)) for n, r in LISTS.items()}


async def test_a_list_costs_a_small_owner_the_same_however_many_rows_others_have(store):
    await fill(store, MINE)
    alone = await measured(store)
    await fill(store, f"{NUMBERS};{THEIRS};DROP TABLE n")
    await store.transact(analyze)
    among = await measured(store)

    assert {} == {
        name: (alone[name], cost)
        for name, cost in among.items()
        if cost - alone[name] > OTHERS // 4
    }


async def test_dead_letters_are_counted_up_to_a_bound(store, monkeypatch):
    await fill(store, MINE)
    whole = await store.dead_letters()
    monkeypatch.setattr(dead_letters, "DEAD_COUNTED", 1)

    assert (2, 1) == (whole, await store.dead_letters())


OWNED = """
INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, 1, 'job.queued', 1, tenant, "user" FROM jobs
"""
DEAD = """
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, finished_at, input, fingerprint,
                  error_code, tags)
SELECT 'job_' || (1000 + n), 'acme', 'user' || (n % 3), 'greet', 'default',
       CASE WHEN n % 7 = 0 THEN 'cancelled' WHEN n % 7 < 3 THEN 'queued'
            ELSE 'failed' END, 0, n, 3, n, n,
       CASE WHEN n % 7 = 0 OR n % 7 > 2 THEN n END, '{}',
       'f' || CASE WHEN n < 30 THEN 0 ELSE 1 + n % 2 END, 'code',
       CASE WHEN n % 2 = 0 THEN 'rare' END
  FROM n WHERE n <= 100
"""


async def test_old_dead_letters_are_counted_without_being_read(store, monkeypatch):
    await fill(store, f"{NUMBERS};{DEAD};DROP TABLE n")
    whole = await store.failures(LARGE, limit=9)
    few = await store.failures(LARGE, limit=2)
    monkeypatch.setattr(dead_letters, "DEAD_REACH", 5)

    assert {"f0": 16, "f1": 20, "f2": 20} == {g.fingerprint: g.size for g in whole}
    assert whole == await store.failures(LARGE, limit=9)
    assert few == await store.failures(LARGE, limit=2)


@pytest.mark.parametrize("owner", [None, LARGE, Owner("acme", "user1")])
@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize(
    "states", [["failed"], ["failed", "cancelled"], ["queued"], ["failed", "queued"]]
)
async def test_a_walk_through_dead_letters_or_a_backlog_finds_what_a_list_finds(
    store, monkeypatch, owner, oldest_first, states
):
    await fill(store, f"{NUMBERS};{DEAD};{OWNED};DROP TABLE n")
    monkeypatch.setattr(dead_letters, "DEAD_REACH", 7)
    chosen = frozenset(map(JobState, states))
    where = JobFilter(owner, states=chosen, tag="rare", oldest_first=oldest_first)
    listed = await store.jobs(where, before=None, limit=99)

    before, walked, steps = None, [], 0
    while steps == 0 or before is not None:
        page, before = await store.walk(where, before=before, limit=99, reach=20)
        walked += page
        steps += 1
    counted, is_all = await store.count_within(where, most=99, reach=20)

    assert [job.id for job in listed] == [job.id for job in walked]
    assert steps > 1
    assert 0 < counted < len(listed)
    assert not is_all


MANY = """
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, finished_at, input, output,
                  tags)
SELECT 'job_' || n, 'acme', 'ann', 'greet', 'default',
       CASE WHEN n % 4000 = 1 THEN 'cancelled' ELSE 'succeeded' END, 0, n, 3, n, n, n,
       '{}', CASE WHEN n % 4000 <> 1 THEN '1' END,
       CASE WHEN n % 4000 = 2 THEN 'rare' END
  FROM n
"""
CANCELLED = JobFilter(ANN, state=JobState.CANCELLED)


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_cancelled_jobs_of_an_owner_are_found_by_their_index(store, oldest_first):
    await fill(store, f"{NUMBERS};{MANY};{OWNED};DROP TABLE n")
    await store.transact(analyze)
    where = replace(CANCELLED, oldest_first=oldest_first)
    found, onward = await store.walk(where, before=None, limit=9, reach=100)
    rest, _ = await store.walk(where, before=found[1].seq, limit=2, reach=100)
    ids = [f"job_{4000 * place + 1}" for place in range(5)]

    assert ids[:: 1 if oldest_first else -1] == [job.id for job in found]
    assert found[2:4] == rest
    assert onward is None
    assert (5, True) == await store.count_within(where, most=9, reach=100)
    for read in (
        lambda c: listing.walk(c, where, None, 9, 100),
        lambda c: listing.count_within(c, where, 9, 100),
    ):
        assert OTHERS // 20 > await store.read(lambda c, r=read: visits(c, r))


LIVE_ONES = """
UPDATE jobs SET state = 'queued', finished_at = NULL, output = NULL WHERE {which}
"""
DEAD_ONES = """
UPDATE jobs SET state = 'failed', output = NULL, fingerprint = 'f', error_code = 'code'
 WHERE {which}
"""
LATEST = f"seq > {OTHERS - 5_000}"
HISTORIES = {
    "a few that wait, old": (JobState.QUEUED, LIVE_ONES, "seq % 4000 = 3"),
    "a backlog": (JobState.QUEUED, LIVE_ONES, LATEST),
    "a backlog after one that is old": (
        JobState.QUEUED,
        LIVE_ONES,
        f"{LATEST} OR seq = 7",
    ),
    "many dead letters": (JobState.FAILED, DEAD_ONES, LATEST),
}

MOST_VISITS = {"sqlite": 6 * OTHERS, "postgresql": 4 * OTHERS}
"""A list that reads the whole history takes more."""


@pytest.mark.parametrize("owner", [None, LARGE, ANN])
@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("history", HISTORIES)
async def test_jobs_in_a_state_are_found_without_reading_a_long_history(
    store, monkeypatch, owner, oldest_first, history
):
    state, made, which = HISTORIES[history]
    update = made.format(which=which)
    await fill(store, f"{NUMBERS};{MANY};{OWNED};{update};DROP TABLE n")
    await store.transact(analyze)
    monkeypatch.setattr(listing, "LIVE_REACH", 1_000)
    where = JobFilter(owner, state=state, oldest_first=oldest_first)
    numbers = await store.read(
        lambda c: c.execute(sa.text(f"SELECT seq FROM jobs WHERE {which}")).scalars()  # noqa: S608 - a constant
    )
    meant = sorted(numbers, reverse=not oldest_first)

    page, onward = await store.walk(where, before=None, limit=9, reach=1_000)
    assert page  # what waits longest is shown at once
    walked = [job.seq for job in page]
    while len(walked) < 30 and (len(page) == 9 or onward is not None):
        before = page[-1].seq if len(page) == 9 else onward
        page, onward = await store.walk(where, before=before, limit=9, reach=1_000)
        walked += [job.seq for job in page]
    counted, is_all = await store.count_within(where, most=99_999, reach=1_000)

    assert meant[: len(walked)] == walked
    assert len(walked) >= min(27, len(meant))
    assert counted <= len(meant)
    assert not is_all or counted == len(meant)
    for read in (
        lambda c: listing.walk(c, where, None, 9, 1_000),
        lambda c: listing.count_within(c, where, 99, 1_000),
    ):
        cost, most = await store.read(
            lambda c, r=read: (visits(c, r), MOST_VISITS[c.dialect.name])
        )
        assert cost < most


STEPS = """
INSERT INTO flows (seq, id, tenant, "user", state, created_at, active, troubled, steps)
VALUES (1, 'flow_a', 'acme', 'ann', 'running', 1, 1, FALSE, 3000);
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, finished_at, input, output,
                  flow, step)
SELECT 'step_' || n, 'acme', 'ann', 'greet', 'default', 'succeeded', 0, 1, 3,
       1, 1, 5, '{}', '1', 1, n
  FROM n WHERE n <= 3000
"""


async def test_steps_of_an_old_flow_are_found_by_the_flow(store):
    where = JobFilter(LARGE, flow=1)

    def page(connection, before=None):
        return listing.jobs(connection, where, before, 2)

    async def cost():
        await store.transact(analyze)
        return await store.read(lambda c: visits(c, page))

    await fill(store, f"{NUMBERS};{STEPS}")
    alone = await cost()
    await fill(store, f"{MANY};DROP TABLE n")
    among = await cost()

    assert among - alone < OTHERS // 4
    found = await store.read(page)
    rest = await store.read(lambda c: page(c, found[-1].seq))
    ids = [f"step_{n}" for n in range(3_000, 2_996, -1)]
    assert ids == [job.id for job in (*found, *rest)]


async def test_jobs_of_an_owner_are_looked_at_in_shorter_walks(store, monkeypatch):
    await fill(store, f"{NUMBERS};{MANY};{OWNED};DROP TABLE n")
    await store.transact(analyze)
    where = JobFilter(ANN, tag="rare")

    async def cost():
        return await store.read(
            lambda c: visits(c, lambda c: listing.walk(c, where, None, 9, OTHERS))
        )

    monkeypatch.setattr(listing, "OWNED_REACH", OTHERS)
    whole = await cost()
    monkeypatch.setattr(listing, "OWNED_REACH", OTHERS // 20)
    short = await cost()
    before, walked = None, []
    while before is not None or not walked:
        page, before = await store.walk(where, before=before, limit=9, reach=OTHERS)
        walked += page

    assert short < whole / 10
    assert [f"job_{4000 * place + 2}" for place in reversed(range(5))] == [
        job.id for job in walked
    ]


FORGET_OWNERS = 'UPDATE events SET tenant = NULL, "user" = NULL WHERE seq % 2 = 0'
ABOUT = {
    "owner": JobFilter(ANN),
    "owner's queued": in_state("queued"),
    "tenant": JobFilter(TINY),
    "large tenant": JobFilter(LARGE),
}


async def seen(store):
    """Read all lists of jobs, and what an erasure would find."""

    def read(connection):
        pages = {
            name: [job.id for job in listing.jobs(connection, where, None, 99)]
            for name, where in ABOUT.items()
        }
        counts = {name: listing.count(connection, w) for name, w in ABOUT.items()}
        erased = erasure._erasable(connection, ANN, 99).ids
        return pages, counts, erased, erasure._unfinished(connection, ANN, 99)

    return await store.read(read)


async def test_jobs_of_a_release_that_wrote_no_owners_are_listed_and_erased(
    store, monkeypatch
):
    monkeypatch.setattr(paging, "WINDOW", 0)
    await fill(store, MINE)
    whole = await seen(store)
    await fill(store, FORGET_OWNERS)
    partly = await seen(store)
    filled = await store.fill_event_owners(limit=99)

    assert whole == partly
    assert 0 < filled
    assert whole == await seen(store)
    assert {"owner": 4, "owner's queued": 1, "tenant": 6, "large tenant": 4} == whole[1]
    assert [len(ids) for ids in whole[0].values()] == [*whole[1].values()]
