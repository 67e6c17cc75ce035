"""
The first pages of one owner among ten thousand, who have a million jobs together.

Each is compared with the same pages where nobody else has any. Rows are written by SQL:
a million submits would take minutes and leave the same rows behind.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from backburner import Backburner
from backburner.domain.job import Owner
from backburner.ports.store import JobFilter, Tx
from bench.meter import NotTrueError

JOBS = 1_000_000
OWNERS = 10_000
OWN = JOBS // OWNERS
FAILED = 10
"""Every tenth job failed."""
PAGE = 20
READS = 200
OWNER = Owner("default", "77")
FAR = 4_000_000_000_000
"""A time that no pruning reaches."""
FILL = (
    f"""
    INSERT INTO jobs (seq, id, tenant, "user", capability, queue, state,
      priority, rank, attempt, max_attempts, events, created_at, ready_at,
      started_at, finished_at, input, output, error_code, fingerprint)
    SELECT i, 'job_' || i, 'default', CAST(i % {OWNERS} AS TEXT), 'bench.noop', 'bench',
      CASE WHEN (i / {OWNERS}) % {FAILED} = 0 THEN 'failed' ELSE 'succeeded' END,
      0, i, 1, 3, 3, {FAR}, {FAR}, {FAR}, {FAR}, '{"x" * 200}', '{{"i":1}}',
      CASE WHEN (i / {OWNERS}) % {FAILED} = 0 THEN 'ValueError' END,
      CASE WHEN (i / {OWNERS}) % {FAILED} = 0 THEN 'f' END
    FROM ({{numbers}}) AS n WHERE {{wanted}}
    """,
    f"""
    INSERT INTO events (job, n, type, at, tenant, "user")
    SELECT seq, k.column1, k.column2, {FAR}, tenant, "user" FROM jobs,
      (VALUES (1, 'job.queued'), (2, 'job.started'), (3, 'job.succeeded')) AS k
     ORDER BY seq, k.column1
    """,
)
NUMBERS = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
    f" WHERE i < {JOBS}) SELECT i FROM n",
    "postgresql": f"SELECT generate_series(1, {JOBS}) AS i",
}


def fill(*, alone: bool) -> Callable[[Tx], None]:
    """Return a body that stores everybody's jobs, or only those of one owner."""

    def body(tx: Tx) -> None:
        connection: Any = tx.connection
        numbers = NUMBERS[connection.dialect.name]
        wanted = f"i % {OWNERS} = {OWNER.user}" if alone else "i > 0"
        for statement in FILL:
            filled = statement.replace("{numbers}", numbers)
            connection.exec_driver_sql(filled.replace("{wanted}", wanted))

    return body


async def measure(bb: Backburner) -> dict[str, float]:
    """Return the median time of each first page, in milliseconds."""
    store = bb.engine.store

    async def first_events() -> Any:
        return (await store.stream(OWNER, after=0, limit=PAGE)).events

    lists: dict[str, Callable[[], Awaitable[Any]]] = {
        "jobs": lambda: store.jobs(JobFilter(OWNER), before=None, limit=PAGE),
        "failures": lambda: store.failures(OWNER, limit=PAGE),
        "events": first_events,
    }
    found = {name: len(await read()) for name, read in lists.items()}
    if found != {"jobs": PAGE, "failures": 1, "events": PAGE}:
        raise NotTrueError(f"the owner's first pages have {found}")
    return {name: await _median_ms(read) for name, read in lists.items()}


async def _median_ms(read: Callable[[], Awaitable[Any]]) -> float:
    times = []
    for _ in range(READS):
        begun = time.perf_counter()
        await read()
        times.append(time.perf_counter() - begun)
        await asyncio.sleep(0)
    return statistics.median(times) * 1000


def compared(alone: dict[str, float], among: dict[str, float]) -> dict[str, float]:
    """Say how many times longer each page takes among others, and the worst."""
    ratios = {f"{name}_ratio": round(among[name] / alone[name], 2) for name in alone}
    spans = {f"{name}_ms": round(ms, 3) for name, ms in among.items()}
    return {**ratios, **spans, "worst_ratio": max(ratios.values())}
