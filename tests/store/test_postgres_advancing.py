"""A function that ends steps and advances flows does what a transaction would."""

import asyncio
import random
import secrets
from datetime import timedelta

import asyncpg
import pytest
import sqlalchemy as sa

from backburner.domain.groups.flow import Edge
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState, Need
from backburner.domain.jobs.outcome import Done, Failed, HandedBack
from backburner.domain.jobs.transitions import Limits
from backburner.ports.faults import NoFaults
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres import store as store_module
from backburner.stores.postgres.advancing import (
    LONGEST,
    MOST,
    OutputCache,
    advance_flows,
)
from backburner.stores.postgres.store import PostgresStore
from backburner.testing.samples import NOON, a_new_flow, a_new_step
from backburner.testing.store.linked import CALLBACK, Course, Hands

PLAYS = range(8)
OUTCOMES = [Done('"well"'), Failed("BAD", "so it is", False), HandedBack()]
READ = [
    """SELECT seq, state, step, rank, open, needs, attempt, generation, token, worker,
              output, error, error_code, run_at, ready_at, finished_at, events
         FROM jobs WHERE flow IS NOT NULL ORDER BY seq""",
    """SELECT seq, state, generation, active, troubled, finished_at, events
         FROM flows ORDER BY seq""",
    """SELECT job, flow, n, type, at, data FROM events
        WHERE flow IS NOT NULL
           OR job IN (SELECT seq FROM jobs WHERE flow IS NOT NULL) ORDER BY 1, 2, 3""",
    "SELECT id, input FROM jobs WHERE capability LIKE '%deliver%' ORDER BY id",
]


class World:
    """A database with a worker, and what that worker holds."""

    def __init__(self, url):
        self._url = url
        self.store = PostgresStore(url, faults=NoFaults())
        self._held = []
        self.given = []
        """What the worker was given with each step, in turn."""

    async def open(self):
        await self.store.open()
        await self.store.enlist(WorkerInfo("w_1", "here", 1, 99, ("default",), NOON))

    async def play(self, seed):
        """Play some flows to their end, as the dice have it."""
        dice = random.Random(seed)
        await self.store.submit_flows(flows_of(dice, seed))
        for _ in range(500):
            token = f"{dice.random():.14f}"
            claim_requests = [ClaimRequest("default", dice.randint(1, 5))]
            found = await self.store.claim("w_1", token, claim_requests, now=NOON + 9)
            self._held += sorted(found, key=lambda claim: claim.seq)
            self.given += [(claim.seq, list(claim.given)) for claim in found]
            if not self._held:
                return
            size = dice.randint(1, len(self._held))
            ending = sorted(dice.sample(range(len(self._held)), size), reverse=True)
            asked = [settlement(dice, self._held.pop(place)) for place in ending]
            if dice.random() < 0.1:
                asked.append(asked[0])
            await self.store.settle(asked)
        raise AssertionError("it does not end")

    async def rows(self):
        """Return all that is known of flows."""
        connection = await asyncpg.connect(self._url)
        found = [await connection.fetch(query) for query in READ]
        await connection.close()
        return found


def flows_of(dice, seed):
    """Return flows that the dice alone decide, down to their names."""
    flows = []
    for number in range(dice.randint(1, 9)):
        steps = []
        for place in range(dice.randint(1, 7)):
            earlier = dice.sample(range(place), min(place, dice.randint(0, 2)))
            step = a_new_step(
                f"s{place}",
                *[Edge(f"s{n}", dice.random() < 0.3) for n in earlier],
                id=f"job_{seed}_{number}_{place}",
                run_at=dice.choice([None] * 9 + [NOON - 3]),
                callback=dice.choice([None] * 9 + [CALLBACK]),
            )
            steps.append(step)
        told = dice.choice([None, CALLBACK])
        flows.append(a_new_flow(*steps, id=f"flow_{seed}_{number}", callback=told))
    return flows


def settlement(dice, claim):
    outcome = dice.choices(OUTCOMES, [20, 2, 1])[0]
    change = transitions.settle(
        claim, outcome, now=NOON, backoff=timedelta(), limits=Limits()
    )
    return Settlement(claim.seq, claim.token, change, consequences=claim.consequences)


@pytest.fixture
async def played(_migrated, monkeypatch):
    """Play to the end with a function, or without one; return what is known then."""

    async def played(function):
        await asyncio.to_thread(_migrated.clean)
        monkeypatch.setattr(store_module, "advance_flows", lambda _: function)
        world = World(_migrated.url)
        await world.open()
        try:
            for seed in PLAYS:
                await world.play(seed)
        finally:
            await world.store.close()
        return [world.given, *await world.rows()]

    return played


async def test_it_comes_to_the_same_as_a_transaction(played):
    function = advance_flows(store_module.Queries.load())
    given, jobs, flows, events, told = await played(function)

    assert [given, jobs, flows, events, told] == await played(None)
    assert {"succeeded", "failed"} <= {flow["state"] for flow in flows}
    assert told


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("unnest(freed), -1", "unnest(freed), 0"),
        ("IF one.troubled THEN", "IF false THEN"),
        ("IF one.callback IS NOT NULL THEN", "IF false THEN"),
        ("ended := ended || one.flow;", ""),
        ("done := done || one.seq;", ""),
        ("sources := sources || one.source", "sources := sources || done[1]"),
    ],
)
async def test_and_would_not_if_something_were_left_out(played, right, wrong):
    function = advance_flows(store_module.Queries.load())
    assert right in function
    without = await played(None)

    assert without != await played(function.replace(right, wrong))


@pytest.fixture
async def poor_url(migrated_url):
    """Name a database to a role that may make nothing temporary in it."""
    name, role = migrated_url.rpartition("/")[2], f"role_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(migrated_url)
    await admin.execute(
        f'REVOKE TEMPORARY ON DATABASE "{name}" FROM PUBLIC;'
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA public TO {role};"
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};"
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
    )
    yield sa.make_url(migrated_url).set(username=role).render_as_string()
    await admin.execute(
        f'GRANT TEMPORARY ON DATABASE "{name}" TO PUBLIC;'
        f"DROP OWNED BY {role}; DROP ROLE {role}"
    )
    await admin.close()


async def test_a_role_that_may_make_no_function_does_without(poor_url):
    world = World(poor_url)
    await world.open()
    [flow] = await world.store.submit_flows(
        [a_new_flow(a_new_step("a"), a_new_step("b", "a"))]
    )
    course = Course(Hands(world.store), flow.id)
    await course.end("a")
    await course.end("b")
    states, made = await course.states(), world.store._settling.has_function
    await world.store.close()

    assert {"a": "succeeded", "b": "succeeded"} == states
    assert not made


def test_what_was_kept_is_given_once_and_forgotten_with_the_session():
    kept = OutputCache()
    one, other = object(), object()
    need = Need("a", "job_1", JobState.SUCCEEDED, "1", None)
    long = need._replace(output="1" * (LONGEST + 1))
    kept.serve(one)
    kept.keep([("b", need), ("c", need), ("d", need), ("e", long)])
    first = [kept.take(heir) for heir in ("b", "b", "e")]
    kept.serve(one)
    second = kept.take("c")
    kept.serve(other)

    assert [need, None, None] == first
    assert need == second
    assert kept.take("d") is None


def test_the_oldest_is_forgotten_if_nobody_comes_for_it():
    kept = OutputCache()
    need = Need("a", "job_1", JobState.SUCCEEDED, "1", None)
    kept.keep((f"job_{n}", need) for n in range(MOST + 1))

    assert kept.take("job_0") is None
    assert need == kept.take("job_1")
