"""Whatever is done to flows at once, at random, on PostgreSQL: the counts are right."""

import asyncio
import random

import asyncpg
import pytest

from backburner.domain.errors import CallerError, Problem
from backburner.domain.events import event
from backburner.domain.groups.flow import Edge
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import WAITING, JobState
from backburner.domain.jobs.transitions import Change
from backburner.ports.faults import NoFaults
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres.store import PostgresStore
from backburner.testing.samples import NOON, a_new_flow, a_new_step
from backburner.testing.store.acts import move, retry
from backburner.testing.store.linked import (
    BAD,
    CALLBACK,
    GOOD,
    Course,
    Hands,
    adding,
)

ENDED = transitions.cancel_all("no", now=NOON + 1000)


@pytest.fixture
async def stores(migrated_url):
    stores = [PostgresStore(migrated_url, faults=NoFaults()) for _ in range(3)]
    for store in stores:
        await store.open()
    await stores[0].enlist(
        WorkerInfo("w_1", "here", 1, 8, ("default",), started_at=NOON)
    )
    yield stores
    for store in stores:
        await store.close()


@pytest.fixture
async def watcher(migrated_url):
    connection = await asyncpg.connect(migrated_url)
    yield connection
    await connection.close()


async def breaches(connection):
    """Return what is not as it must be, by the rule that it breaks."""
    found = {rule: await connection.fetch(query) for rule, query in RULES.items()}
    return {rule: rows for rule, rows in found.items() if rows}


RULES = {
    "a flow knows how many of its steps wait for no other": """
        SELECT id FROM flows WHERE active <> (
          SELECT count(*) FROM jobs WHERE flow = flows.seq AND finished_at IS NULL
                                      AND state <> 'blocked')""",
    "a flow is over when nothing is left of it": """
        SELECT id FROM flows WHERE (state = 'running') <> EXISTS (
          SELECT 1 FROM jobs WHERE flow = flows.seq AND finished_at IS NULL)""",
    "a step knows how many others it waits for": """
        SELECT id FROM jobs WHERE state = 'blocked' AND open <> (
          SELECT count(*) FROM edges JOIN jobs AS p ON p.seq = prerequisite
           WHERE dependent = jobs.seq AND p.finished_at IS NULL)""",
    "what is blocked waits for something, and nothing else does": """
        SELECT id FROM jobs WHERE (state = 'blocked') <> (open > 0)""",
    "a step does not go on without what it needs": """
        SELECT jobs.id FROM jobs JOIN edges ON dependent = jobs.seq
          JOIN jobs AS p ON p.seq = prerequisite
         WHERE NOT continues AND p.state <> 'succeeded'
           AND (jobs.state IN ('scheduled','queued','running','succeeded')
                OR jobs.state = 'blocked' AND p.state IN ('failed','cancelled'))""",
    "events are numbered without gaps": """
        SELECT subject FROM (
          SELECT jobs.id AS subject, jobs.events AS told, n FROM jobs
            LEFT JOIN events ON job = jobs.seq
           UNION ALL
          SELECT flows.id, flows.events, n FROM flows
            LEFT JOIN events ON flow = flows.seq) AS all_of_them
         GROUP BY subject, told HAVING count(n) <> told OR max(n) <> told""",
    "every end is told of once": """
        SELECT subject FROM (
          SELECT jobs.id AS subject, type FROM jobs JOIN events ON job = jobs.seq
           WHERE callback IS NOT NULL
             AND type IN ('job.succeeded','job.failed','job.cancelled')
           UNION ALL
          SELECT flows.id, type FROM flows JOIN events ON flow = flows.seq
           WHERE callback IS NOT NULL
             AND type IN ('flow.succeeded','flow.failed','flow.cancelled')) AS ends
         GROUP BY subject HAVING count(*) <> (
           SELECT count(*) FROM jobs WHERE tags = 'delivery:' || subject)""",
}


class Mischief:
    """Does whatever may be done to flows, at random, and waits for nobody."""

    def __init__(self, seed, store, courses):
        self._chance = random.Random(seed)
        self._hands = Hands(store, f"token_{seed}")
        self._seed = seed
        self._store = store
        self._courses = courses
        self._added = 0

    async def go_on(self, rounds):
        for _ in range(rounds):
            course = self._chance.choice(self._courses)
            act = self._chance.choice(
                [self._settle] * 8 + [self._retry] * 8 + [self._cancel, self._end]
            )
            await act(Course(self._hands, course))

    async def _settle(self, course):
        held = await self._hands.take()
        mine = [job for job in (await course.jobs()).values() if job.id in held]
        for job in mine[: self._chance.randint(1, 3)]:
            outcome = self._chance.choice([GOOD, GOOD, GOOD, BAD])
            body = None
            if outcome is GOOD and self._chance.random() < 0.3:
                body = await self._adding(course, job)
            await self._hands.end(job.id, outcome=outcome, body=body, otherwise=_failed)

    async def _adding(self, course, job):
        self._added += 1
        name = f"{self._seed}_{self._added}"
        states = await course.states()
        other = Edge(self._chance.choice([*states]), self._chance.random() < 0.5)
        blocked = [name for name, state in states.items() if state == "blocked"]
        before = self._chance.sample(blocked, min(len(blocked), 1))
        step = a_new_step(name, job.step, other, before=before, callback=CALLBACK)
        return adding(job.flow, step)

    async def _retry(self, course):
        jobs = (await course.jobs()).values()
        failed = [retry(job) for job in jobs if job.state is JobState.FAILED]
        if failed:
            await self._store.reopen(failed[: self._chance.randint(1, 2)])

    async def _cancel(self, course):
        waiting = [j for j in (await course.jobs()).values() if j.state in WAITING]
        if waiting:
            job = self._chance.choice(waiting)
            change = transitions.cancel(job, "no", now=NOON)
            await self._store.move([move(job, change)])

    async def _end(self, course):
        if self._chance.random() < 0.1:
            await self._store.cancel_flow((await course.flow()).seq, ENDED)


def _failed(error):
    assert isinstance(error, CallerError), error
    return Change(JobState.FAILED, event.FAILED, NOON, error=Problem("NO", "no"))


async def test_whatever_is_done_at_once_the_counts_are_right(stores, watcher):
    flows = [
        a_new_flow(
            a_new_step("a", callback=CALLBACK),
            a_new_step("b"),
            a_new_step("c", "a"),
            a_new_step("d", "a", Edge("b", continues=True)),
            a_new_step("e", Edge("c", continues=True), "d", callback=CALLBACK),
            a_new_step("f", "e"),
            callback=CALLBACK,
        )
        for _ in range(4)
    ]
    await stores[0].submit_flows(flows)
    ids = [flow.id for flow in flows]
    revels = [Mischief(seed, store, ids) for seed, store in enumerate(stores)]

    await asyncio.gather(*(revel.go_on(60) for revel in revels))

    assert {} == await breaches(watcher)
    assert 50 < await watcher.fetchval("SELECT count(*) FROM events")
    await watcher.execute("UPDATE flows SET active = active + 1")
    assert 1 == len(await breaches(watcher)), "a count that is wrong is found"
