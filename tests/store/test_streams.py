"""What a page of events reads depends on its owner's events, not on the others'."""

import pytest
import sqlalchemy as sa

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.domain.events.publication import publication
from backburner.domain.groups.batch import Members
from backburner.domain.jobs.job import Owner, Tenant
from backburner.ports.faults import NoFaults
from backburner.ports.store.events import EVERYTHING, Topic
from backburner.ports.store.flows import GroupFilter
from backburner.stores.shared import event_streams
from backburner.stores.shared.event_streams import Span, page
from backburner.stores.sqlite.database import driver
from backburner.stores.tables import events
from backburner.testing.samples import (
    ANN,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from tests.plans import pages_of, plans

SMALL = Owner("acme", "small")
OTHERS = sa.text("""
INSERT INTO events (n, type, at, tenant, "user", topic)
WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 20000)
SELECT 0, 'noted', 1, 'acme', 'other_' || (i % 2000), 'news' FROM k
""")
MOST = 10
"""
How many times the work a page may cost among others: a walk costs over a hundred.

SQLite may read a small owner's events by the owner or by the topic, as it likes.
"""
FORGET_OWNERS = sa.text('UPDATE events SET tenant = NULL, "user" = NULL')


pytestmark = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
async def opened(store_url):
    store = find_store(store_url, SystemClock(), NoFaults())
    await store.open()
    yield store
    await store.close()


def work(connection, owner, topic, span):
    """Return a page, and how much was done for it: pages read, or SQLite's steps."""

    def read(connection):
        found.append(page(connection, owner, topic, span))

    found, steps = [], []
    if connection.dialect.name == "postgresql":
        pages = sum(map(pages_of, plans(connection, read)))
        return found[0], pages
    driver(connection).set_progress_handler(lambda: steps.append(1), 1)
    try:
        read(connection)
    finally:
        driver(connection).set_progress_handler(None, 0)
    return found[0], len(steps)


async def ask(store, owner, topic=EVERYTHING, limit=50, after=0):
    span = Span(after, await store.latest(), limit)
    return await store.read(lambda c: work(c, owner, topic, span))


async def execute(store, statement):
    await store.transact(lambda tx: tx.connection.execute(statement))


async def fill(store, owner):
    jobs = [a_new_job(owner=owner, tags=("mine",)) for _ in range(20)]
    await store.submit(jobs)
    note = publication("news", "noted", {}, to=owner, at=1)
    await store.transact(lambda tx: tx.publish([note]))


VIEWS = {
    "everything": (SMALL, EVERYTHING),
    "with-queues": (SMALL, Topic(queues=True)),
    "tag": (SMALL, Topic(tag="mine")),
    "topic": (SMALL, Topic(name="news")),
    "tenant": (Tenant("tiny"), EVERYTHING),
    "tenant-topic": (Tenant("tiny"), Topic(name="news")),
}


@pytest.mark.parametrize("view", VIEWS)
async def test_a_page_costs_the_same_among_twenty_thousand_events_of_others(
    opened, view
):
    owner, topic = VIEWS[view]
    mine = owner if isinstance(owner, Owner) else Owner("tiny", "one")
    await fill(opened, mine)
    alone, before = await ask(opened, owner, topic)
    await execute(opened, OTHERS)
    await execute(opened, sa.text("ANALYZE"))  # as autovacuum does
    await fill(opened, mine)
    among, after = await ask(opened, owner, topic)

    assert alone.events == among.events[: len(alone.events)]
    assert 2 * len(alone.events) == len(among.events) > 0
    assert among.is_last
    assert after <= MOST * before


async def test_a_walk_through_everybodys_events_is_noticed(opened, monkeypatch):
    """The control of the test above."""
    monkeypatch.setattr(event_streams, "FEW", 0)
    monkeypatch.setattr(event_streams, "SPAN", 1_000_000)
    await fill(opened, SMALL)
    _, before = await ask(opened, SMALL)
    await execute(opened, OTHERS)
    await execute(opened, sa.text("ANALYZE"))
    await fill(opened, SMALL)
    _, after = await ask(opened, SMALL)

    assert after > MOST * before


TELL = """
INSERT INTO events ({key}, n, type, at, tenant, "user")
WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 20000)
SELECT t.seq, t.events + i, 'told', 1, t.tenant, t."user"
  FROM k, {table} AS t WHERE {chosen} ORDER BY i
"""
COUNT = "UPDATE {table} SET events = events + 20000 WHERE {chosen}"
TALKS = {
    "job": {"table": "jobs", "chosen": "step = 'talks'"},
    "batch": {"table": "batches", "chosen": "seq = 1"},
}


async def talk(store, key):
    """Have a step of the flow, or the batch, tell of twenty thousand things."""
    for statement in (TELL, COUNT, "ANALYZE"):
        await execute(store, sa.text(statement.format(key=key, **TALKS[key])))


async def a_talkative_group(store, key):
    """Measure the first page of a flow or batch, and its news after a lot was told."""
    steps = [a_new_step(name) for name in ("talks", "waits", "rests")]
    flow = a_new_flow(*steps)
    await store.open_batch(a_new_batch(), Members([], [flow]))
    [found] = await store.flows(GroupFilter(ANN), before=None, limit=1)
    topic = Topic(flow=found.seq) if key == "job" else Topic(batch=1)
    begun = await ask(store, ANN, topic)
    await talk(store, key)
    after = await store.latest() - 3
    return begun, await ask(store, ANN, topic, after=after), topic


@pytest.mark.parametrize("key", TALKS)
async def test_the_news_of_a_group_cost_the_same_whatever_was_told_before(opened, key):
    (begun, before), (news, after), topic = await a_talkative_group(opened, key)
    first, at_first = await ask(opened, ANN, topic, limit=len(begun.events))
    last = await opened.latest()

    assert [last - 2, last - 1, last] == [event.seq for event in news.events]
    assert begun.events == first.events
    assert max(after, at_first) <= MOST * before


@pytest.mark.parametrize("key", TALKS)
async def test_a_look_at_all_events_of_a_group_is_noticed(opened, monkeypatch, key):
    """The control of the test above."""
    monkeypatch.setattr(event_streams, "_news", all_of_group)
    (_, before), (news, after), _ = await a_talkative_group(opened, key)

    assert 3 == len(news.events)
    assert after > MOST * before


def all_of_group(key, chosen):
    holders = sa.select(event_streams.HOLDERS[key].c.seq).where(chosen)
    found = sa.select(events.c.seq).where(events.c[key].in_(holders))
    # With a limit nobody can push the condition into it.
    told = found.limit(1_000_000).cte(f"all_of_{key}").c.seq
    return sa.select(told).where(told > event_streams.AFTER)


async def test_a_flow_is_read_in_pages_of_any_size(opened):
    _, _, topic = await a_talkative_group(opened, "job")
    whole = (await opened.stream(ANN, after=0, limit=30_000, topic=topic)).events
    pages, seen = [], []
    for limit in (1, 2, 3, 5000, 1, 20_000):
        after = seen[-1].seq if seen else 0
        pages.append(await opened.stream(ANN, after=after, limit=limit, topic=topic))
        seen += pages[-1].events

    assert 20_004 == len(whole)
    assert whole == seen
    assert [False] * 5 + [True] == [found.is_last for found in pages]


async def test_whoever_sees_many_users_reads_a_bounded_span_and_goes_on(opened):
    await execute(opened, OTHERS)
    await fill(opened, SMALL)
    pages = [await opened.stream(Tenant("acme"), after=0, limit=10_000)]
    while not pages[-1].is_last:
        after = pages[-1].upto
        pages.append(await opened.stream(Tenant("acme"), after=after, limit=10_000))
    seqs = [event.seq for found in pages for event in found.events]

    assert sorted(set(seqs)) == seqs
    assert 20_021 == len(seqs)
    assert max(len(found.events) for found in pages) <= event_streams.SPAN


async def test_a_rare_tag_is_looked_for_in_bounded_pages(opened, monkeypatch):
    monkeypatch.setattr(event_streams, "SCANNED", 10)
    await opened.submit([a_new_job(owner=SMALL) for _ in range(25)])
    job = a_new_job(owner=SMALL, tags=("rare",))
    await opened.submit([job])
    topic = Topic(tag="rare")
    pages = [await opened.stream(SMALL, after=0, limit=9, topic=topic)]
    while not pages[-1].is_last:
        after = pages[-1].upto
        pages.append(await opened.stream(SMALL, after=after, limit=9, topic=topic))

    assert [0, 0, 1] == [len(found.events) for found in pages]
    assert job.id == pages[-1].events[0].subject


@pytest.mark.parametrize("owner", [SMALL, Tenant("acme")], ids=["owner", "tenant"])
async def test_events_of_an_earlier_release_are_read_before_and_after_upkeep(
    opened, owner
):
    jobs = [a_new_job(owner=SMALL, tags=("mine",)) for _ in range(30)]
    await opened.submit([*jobs[:20], a_new_job(owner=Owner("other", "ann"))])
    await execute(opened, FORGET_OWNERS)
    await opened.submit(jobs[20:])
    topics = [EVERYTHING, Topic(tag="mine")]

    async def read():
        found = [await opened.stream(owner, after=0, limit=99, topic=t) for t in topics]
        return [[event.subject for event in page.events] for page in found]

    before = await read()
    filled = [await opened.fill_event_owners(limit=15) for _ in range(3)]

    assert [15, 6, 0] == filled
    assert [[job.id for job in jobs]] * 2 == before == await read()


async def test_events_that_have_an_owner_are_told_before_those_that_have_none_yet(
    opened, monkeypatch
):
    monkeypatch.setattr(event_streams, "SPAN", 5)
    jobs = [a_new_job(owner=SMALL) for _ in range(30)]
    await opened.submit(jobs[:20])
    last = await opened.latest()
    await opened.submit(jobs[20:])
    await execute(opened, sa.text(f"{FORGET_OWNERS} WHERE seq > {last}"))
    pages = [await opened.stream(SMALL, after=0, limit=99)]
    while not pages[-1].is_last:
        pages.append(await opened.stream(SMALL, after=pages[-1].upto, limit=99))

    assert [20, 5, 5] == [len(found.events) for found in pages]
    told = [event.subject for found in pages for event in found.events]
    assert [job.id for job in jobs] == told
