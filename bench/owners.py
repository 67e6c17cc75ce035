"""
Times the first pages of one owner among ten thousand with a million jobs in total.

Each is compared with the same page in a store without other owners.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from backburner import Backburner
from backburner.domain.jobs.job import Owner
from backburner.ports.store.maintenance import JobFilter
from bench import history
from bench.meter import NotTrueError
from bench.servers import fresh_database

JOBS = 1_000_000
OWNERS = 10_000
PAGE = 20
READS = 200
OWNER = Owner("default", "77")

Read = Callable[[], Awaitable[Any]]


def fill(url: str, *, alone: bool) -> None:
    """Write the jobs of all owners, or only those of one."""
    only = OWNER.user if alone else None
    history.fill(url, JOBS, owners=OWNERS, only=only, fail=True)


@contextmanager
def beside(url: str) -> Iterator[str]:
    """Yield the URL of another store of the same kind."""
    if url.startswith("postgres"):
        with fresh_database(url) as another:
            yield another
    else:
        yield f"{url}.alone.db"


async def compared(alone: Backburner, among: Backburner) -> dict[str, float]:
    """
    Return the ratio of the two times of each first page, and its time among others.

    The two stores are read in turn, so that other load on the machine affects both.
    """
    lists = [await _first_pages(bb) for bb in (alone, among)]
    figures: dict[str, float] = {}
    for name in lists[0]:
        before, after = await _median_ms([reads[name] for reads in lists])
        figures[f"{name}_ratio"] = round(after / before, 2)
        figures[f"{name}_ms"] = round(after, 3)
    worst = max(value for name, value in figures.items() if name.endswith("_ratio"))
    return figures | {"worst_ratio": worst}


async def _first_pages(bb: Backburner) -> dict[str, Read]:
    """Return functions that read the first page of each list, after checking them."""
    store = bb.engine.store

    async def first_events() -> Any:
        return (await store.stream(OWNER, after=0, limit=PAGE)).events

    lists: dict[str, Read] = {
        "jobs": lambda: store.jobs(JobFilter(OWNER), before=None, limit=PAGE),
        "failures": lambda: store.failures(OWNER, limit=PAGE),
        "events": first_events,
    }
    found = {name: len(await read()) for name, read in lists.items()}
    if found != {"jobs": PAGE, "failures": 1, "events": PAGE}:
        raise NotTrueError(f"the owner's first pages have {found}")
    return lists


async def _median_ms(reads: Sequence[Read]) -> list[float]:
    times: list[list[float]] = [[] for _ in reads]
    for _ in range(READS):
        for read, taken in zip(reads, times, strict=True):
            begun = time.perf_counter()
            await read()
            taken.append(time.perf_counter() - begun)
            await asyncio.sleep(0)
    return [statistics.median(taken) * 1000 for taken in times]
