"""Measures CPU and memory, and checks in the store that the jobs were run."""

import os
import resource
import time
from dataclasses import dataclass
from typing import Self

import psutil
import sqlalchemy as sa

from backburner import Backburner, Transaction


def at_least(usual: int) -> int:
    """Return the minimum number of jobs of a row, which tests reduce."""
    return int(os.environ.get("BENCH_FEWEST", usual))


class Meter:
    """The wall time and CPU time of this process during a block."""

    def __enter__(self) -> Self:
        self._wall = time.perf_counter()
        self._cpu = _cpu()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._wall
        self.cpu = _cpu() - self._cpu

    def figures(self, count: int) -> dict[str, float]:
        """Return the rate and the CPU time per job."""
        return {
            "per_second": round(count / self.wall),
            "cpu_us": round(self.cpu / count * 1e6, 1),
        }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_mb() -> float:
    """Return the memory of this process."""
    return round(psutil.Process().memory_info().rss / 1e6, 1)


def quantiles(waits: list[float]) -> dict[str, float]:
    """Return the median and the tail, in milliseconds."""
    waits.sort()
    return {
        "p50_ms": round(waits[len(waits) // 2] * 1000, 2),
        "p99_ms": round(waits[int(len(waits) * 0.99)] * 1000, 2),
    }


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected content of the store after a row."""

    jobs: int
    succeeded: int
    events: int


class NotTrueError(Exception):
    """The store does not have the expected content, so the row is not printed."""


COUNTS = """
    SELECT count(*), count(output), coalesce(sum(attempt), 0),
           (SELECT count(*) FROM events WHERE batch IS NULL) FROM jobs
"""


async def check(bb: Backburner, expected: Expected) -> None:
    """Count results, attempts and events, and read the durability settings back."""
    is_sqlite = bb.settings.store.startswith("sqlite")
    asked, durable = SQLITE if is_sqlite else POSTGRES

    def look(tx: Transaction) -> tuple[tuple[int, ...], tuple[str, ...]]:
        counted = tx.connection.execute(sa.text(COUNTS)).one()
        settings = [tx.connection.execute(sa.text(q)).scalar() for q in asked]
        return tuple(map(int, counted)), tuple(map(str, settings))

    wanted = (expected.jobs, expected.succeeded, expected.succeeded, expected.events)
    found = await bb.transact(look)
    if found != (wanted, durable):
        raise NotTrueError(f"found {found}, expected {(wanted, durable)}")


SQLITE = (("PRAGMA journal_mode", "PRAGMA synchronous"), ("wal", "2"))
POSTGRES = (("SHOW fsync", "SHOW synchronous_commit"), ("on", "on"))
