"""What is handed on is what the claim would have taken, had it come afterwards."""

import asyncio
import random
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from backburner.domain.groups.flow import Edge, NewFlow
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim
from backburner.domain.jobs.outcome import Done, Failed, HandedBack
from backburner.domain.jobs.transitions import Limits
from backburner.domain.queues.queue import Queue
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.sqlite import transaction
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.handing import hand_on
from backburner.stores.sqlite.queries import Queries
from backburner.stores.sqlite.reader import InlineReader
from backburner.stores.sqlite.store import SqliteStore
from backburner.stores.sqlite.writer import InlineWriter
from backburner.testing.doubles import FrozenClock
from backburner.testing.samples import ANN, BOB, NOON, a_new_flow, a_new_step

QUEUES = ["one", "two", "gated"]
PLAYS = range(20)
SLOTS = 5
LATER = NOON + 5
"""When claims are made; what they follow was decided at noon."""


class Places:
    """Failpoints of which one may raise."""

    def __init__(self) -> None:
        self.broken = ""

    def hit(self, name: str) -> None:
        if name == self.broken:
            self.broken = ""
            raise RuntimeError("as the test has it")


class World:
    """A file with a worker, and what that worker holds."""

    def __init__(self, path, *, in_one: bool, queries: Queries | None = None) -> None:
        self.places = Places()
        self.held: list[Claim] = []
        self.seen: list[Sequence[Claim]] = []
        """All that the worker got of each queue, in order."""
        self._in_one = in_one
        self._reading = ExitStack()
        self._database = Database(path)
        self.store = SqliteStore(
            self._database, FrozenClock(), queries=queries, faults=self.places
        )

    async def open(self) -> None:
        await self.store.open()
        await self.store.close()
        self.store.attach(
            InlineWriter(self._database, self.store.begin),
            InlineReader(self._reading.enter_context(self._database.connect())),
        )
        await self.store.declare([Queue("gated", concurrency=2)])
        await self.store.enlist(WorkerInfo("w_1", "here", 1, 99, tuple(QUEUES), NOON))

    async def close(self) -> None:
        self._reading.close()
        await self.store.close()

    async def play(self, seed: int) -> None:
        """Play some flows to their end, as the dice have it."""
        dice = random.Random(seed)
        await self.store.submit_flows(_flows(dice, seed))
        await self._turn(dice, [])
        for _ in range(500):
            if not self.held:
                await self._turn(dice, [], most=9)
            if not self.held:
                return
            size = dice.randint(1, min(4, len(self.held)))
            ending = sorted(dice.sample(range(len(self.held)), size), reverse=True)
            await self._turn(dice, [self.held.pop(place) for place in ending])
        raise AssertionError("it does not end")

    async def _turn(
        self, dice: random.Random, ended: Sequence[Claim], *, most: int | None = None
    ) -> None:
        asked = [_settlement(dice, claim) for claim in ended]
        if asked and dice.random() < 0.05:
            asked.append(asked[0])
        room = most or max(1, SLOTS - len(self.held))
        claim_requests = [
            ClaimRequest(queue, dice.randint(1, room)) for queue in QUEUES
        ]
        token = f"{dice.random():.14f}"
        calls = [self.store.settle(asked)]
        if dice.random() < 0.05:
            calls.append(self.store.promote(now=LATER, limit=9))
        calls.append(self.store.claim("w_1", token, claim_requests, now=LATER))
        if self._in_one:
            *_, claims = await asyncio.gather(*calls)
        else:
            *_, claims = [await call for call in calls]
        self.held += sorted(claims, key=lambda claim: claim.seq)
        self.seen += [[c for c in claims if c.queue == queue] for queue in QUEUES]

    def rows(self) -> list[Sequence[object]]:
        """Return all that the file says."""
        with self._database.connect() as connection:
            return [connection.execute(query).all() for query in READ]


READ = [
    sa.text("SELECT * FROM jobs ORDER BY seq"),
    sa.text("SELECT * FROM flows ORDER BY seq"),
    sa.text("SELECT * FROM fronts ORDER BY queue, priority"),
    sa.text("SELECT job, flow, n, type, at, data FROM events ORDER BY 1, 2, 3"),
]


def _flows(dice: random.Random, seed: int) -> list[NewFlow]:
    """Return flows that the dice alone decide, down to their names."""
    flows = []
    for number in range(dice.randint(1, 12)):
        steps = []
        owner = dice.choice([ANN, BOB])
        for place in range(dice.randint(1, 7)):
            earlier = dice.sample(range(place), min(place, dice.randint(0, 2)))
            after = [Edge(f"s{n}", dice.random() < 0.2) for n in earlier]
            step = a_new_step(
                f"s{place}",
                *after,
                id=f"job_{seed}_{number}_{place}",
                owner=owner,
                queue=dice.choice(["one", "one", *QUEUES]),
                priority=dice.choice([0, 0, 0, 5]),
                run_at=dice.choice([None] * 9 + [NOON + 3]),
                start_by=dice.choice([None] * 9 + [NOON + 3, LATER + 3]),
                deadline=dice.choice([None] * 5 + [LATER + 9]),
            )
            steps.append(step)
        flows.append(a_new_flow(*steps, id=f"flow_{seed}_{number}", owner=owner))
    return flows


def _settlement(dice: random.Random, claim: Claim) -> Settlement:
    outcome = dice.choices(
        [Done('"well"'), Failed("BAD", "so it is", False), HandedBack()], [20, 2, 1]
    )[0]
    change = transitions.settle(
        claim, outcome, now=NOON, backoff=timedelta(), limits=Limits()
    )
    body = (lambda _tx: None) if dice.random() < 0.05 else None
    return Settlement(
        claim.seq, claim.token, change, body, consequences=claim.consequences
    )


@pytest.fixture(autouse=True)
def handed(monkeypatch):
    """Return how many steps were handed on, each time that any were."""
    counts = []

    def counted(*asked):
        if flows := hand_on(*asked):
            counts.append(len(flows))
        return flows

    monkeypatch.setattr(transaction, "hand_on", counted)
    return counts


@pytest.fixture
async def worlds(tmp_path):
    """Open a world that does both at once and one that does not."""
    opened: list[World] = []

    async def worlds(queries: Queries | None = None) -> list[World]:
        pair = [
            World(tmp_path / "one.db", in_one=True, queries=queries),
            World(tmp_path / "two.db", in_one=False),
        ]
        for world in pair:
            await world.open()
            opened.append(world)
        return pair

    yield worlds
    for world in opened:
        await world.close()


async def compare(one: World, two: World) -> None:
    for seed in PLAYS:
        await one.play(seed)
        await two.play(seed)
        assert one.seen == two.seen
    assert one.rows() == two.rows()


async def test_it_comes_to_the_same_as_to_claim_afterwards(worlds, handed):
    await compare(*await worlds())

    assert len(handed) > len(PLAYS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("hand_on_jobs", "(-priority, rank, seq) < (-?7, ?8, ?9)", "?8 IS NOT ?9"),
        ("hand_on_jobs", "AND open = 1", ""),
        ("hand_on_jobs", "AND +queue = ?4", ""),
        ("hand_on_jobs", "run_at <= ?5", "run_at <= ?3"),
        ("hand_on_jobs", "AND coalesce(expires_at > ?3, 1)", ""),
        ("hand_on_jobs", "ready_at = ?5", "ready_at = ?3"),
        ("hand_on_jobs", "expires_at = deadline,", ""),
        ("insert_handed_events", "events - 1", "events"),
    ],
)
async def test_and_would_not_if_it_were_less_careful(worlds, name, right, wrong):
    queries = Queries.load()
    text = getattr(queries, name)
    assert right in text
    careless = replace(queries, **{name: text.replace(right, wrong)})

    with pytest.raises((AssertionError, KeyError, sqlite3.IntegrityError)):
        await compare(*await worlds(careless))


async def test_what_is_rolled_back_was_handed_to_nobody(worlds, handed):
    world, _ = await worlds()
    await world.store.submit_flows([a_new_flow(a_new_step("a"), a_new_step("b", "a"))])
    claim_requests = [ClaimRequest("default", 9)]
    [first] = await world.store.claim("w_1", "t1", claim_requests, now=NOON)
    done = transitions.settle(
        first, Done("1"), now=NOON, backoff=timedelta(), limits=Limits()
    )
    settlement = Settlement(
        first.seq, first.token, done, consequences=first.consequences
    )
    world.places.broken = "advance.told"

    failed, none = await asyncio.gather(
        world.store.settle([settlement]),
        world.store.claim("w_1", "t2", claim_requests, now=NOON),
        return_exceptions=True,
    )
    _, [second] = await asyncio.gather(
        world.store.settle([settlement]),
        world.store.claim("w_1", "t3", claim_requests, now=NOON),
    )

    assert isinstance(failed, RuntimeError)
    assert [] == none
    assert [1, 1] == handed
    assert ("b", "t3", 1) == (second.step, second.token, second.attempt)
