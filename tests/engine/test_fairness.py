"""Fair shares end to end: a worker's own order, on both databases."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from pydantic import BaseModel

from backburner import Backburner, Context, capability
from backburner.domain.jobs.job import Owner
from backburner.settings import Settings
from tests import homes

SLOTS = 8
IS_SLOW = homes.BROKER in homes.SLOW
"""Whether the broker could not hold all of that: there are fewer then."""
DUMPED = 2_000 if IS_SLOW else 20_000
SMALL, SERVED = (800, 400) if IS_SLOW else (4_000, 2_000)
BULK = 1_000
PATIENCE = 180.0


class Work(BaseModel):
    """What a job is said to cost."""

    tokens: int | None = None


@dataclass
class Record:
    """Whose jobs were started, in order, and what they cost."""

    started: list[tuple[str, int]] = field(default_factory=list)
    enough: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    full: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def note(self, user: str, tokens: int) -> None:
        """Note a start; hold it back until whoever comes later is there."""
        self.started.append((user, tokens))
        if len(self.started) == SLOTS:
            self.full.set()
        if len(self.started) == self.enough:
            self.done.set()
        await self.released.wait()


@pytest.fixture
async def bench(store_url):
    """An instance with a few slots whose handler keeps a record."""
    record = Record()

    @capability("test.work", tokens=lambda work: work.tokens or 1)
    async def work(ctx: Context, value: Work) -> None:
        await record.note(ctx.job.owner.user, value.tokens or 1)

    @capability("test.unknown")
    async def unknown(ctx: Context, value: Work) -> None:
        await record.note(ctx.job.owner.user, value.tokens or 1)

    settings = Settings(store=store_url, slots=SLOTS, grace_seconds=0)
    async with Backburner(settings, capabilities=[work, unknown]) as backburner:
        yield backburner, record


async def dump(backburner, user, count, *, name="test.work", share=None, tokens=None):
    said = {"owner": Owner("acme", user), "share": share}
    for first in range(0, count, BULK):
        size = min(BULK, count - first)
        await backburner.submit_many(name, [Work(tokens=tokens)] * size, **said)


async def in_flight_first(backburner, record):
    """Start the worker and return when every slot is taken."""
    await backburner.start_worker()
    async with asyncio.timeout(PATIENCE):
        await record.full.wait()


async def served(record, enough):
    """Let the worker go on until so many more were started; return whose they are."""
    record.enough = SLOTS + enough
    record.released.set()
    async with asyncio.timeout(PATIENCE):
        await record.done.wait()
    return record.started[SLOTS : SLOTS + enough]


async def of_b(backburner, record, **fields):
    await dump(backburner, "a", DUMPED, **fields)
    await in_flight_first(backburner, record)
    await dump(backburner, "b", 20, **fields)
    return Counter(user for user, _ in await served(record, 40))["b"]


async def test_who_comes_after_thousands_of_jobs_is_served_in_turn(bench):
    assert 20 == await of_b(*bench), "all of B's are among the next forty"


async def test_who_takes_the_same_share_waits_for_all_of_it(bench):
    assert 0 == await of_b(*bench, share="ours"), "or the test above shows nothing"


def jain(claimed):
    """Return how evenly tokens were dealt out: 1 is even, 1/n is one's alone."""
    tokens = Counter()
    for user, cost in claimed:
        tokens[user] += cost
    return sum(tokens.values()) ** 2 / (2 * sum(t * t for t in tokens.values()))


async def evenness(backburner, record, name):
    await dump(backburner, "a", 40, tokens=100_000, name=name)
    await dump(backburner, "b", SMALL, tokens=1_000, name=name)
    await in_flight_first(backburner, record)
    return jain([*record.started, *await served(record, SERVED)])


async def test_small_and_large_jobs_share_evenly_by_tokens(bench):
    assert await evenness(*bench, "test.work") >= 0.95


async def test_by_count_large_jobs_take_nearly_all(bench):
    assert await evenness(*bench, "test.unknown") < 0.95, "or it shows nothing"
