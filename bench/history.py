"""
Writes finished jobs and their events by SQL, as a store has them after a while.

A million submits would take minutes and write the same rows. They are written in
slices on a separate connection, because the store's connections have a time limit.
"""

import contextlib
import sqlite3
from typing import Final

from bench import work
from bench.servers import ask

SLICE: Final = 50_000
"""The number of jobs that one statement writes."""
FAR: Final = 4_000_000_000_000
"""A time that no pruning reaches."""
FAILED: Final = 10
"""Every tenth job of an owner failed, if any do."""

JOBS: Final = f"""
INSERT INTO jobs (seq, id, tenant, "user", capability, queue, state,
  priority, rank, attempt, max_attempts, events, created_at, ready_at,
  started_at, finished_at, input, output, error_code, fingerprint)
SELECT i, 'job_' || i, 'default', CAST(i % {{owners}} AS TEXT), 'bench.noop',
  '{work.QUEUE}', CASE WHEN {{failed}} THEN 'failed' ELSE 'succeeded' END,
  0, i, 1, 3, 3, {FAR}, {FAR}, {FAR}, {FAR}, '{"x" * 200}',
  CASE WHEN {{failed}} THEN NULL ELSE '{{{{"i":1}}}}' END,
  CASE WHEN {{failed}} THEN 'ValueError' END, CASE WHEN {{failed}} THEN 'f' END
FROM ({{numbers}}) AS n WHERE {{wanted}}
"""
EVENTS: Final = f"""
INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, k.column1, 'job.' || coalesce(k.column2, state), {FAR}, tenant, "user"
  FROM jobs, (VALUES (1, 'queued'), (2, 'started'), (3, NULL)) AS k
 WHERE seq BETWEEN {{first}} AND {{last}} ORDER BY seq, k.column1
"""
SQLITE_NUMBERS: Final = """
WITH RECURSIVE n (i) AS (
  SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT i FROM n
"""
POSTGRES_NUMBERS: Final = "SELECT generate_series({first}, {last}) AS i"


def fill(
    url: str, count: int, *, owners: int = 1, only: str | None = None, fail: bool
) -> None:
    """
    Write jobs 1 to `count`, assigned to owners in turn, and their events.

    With `only`, write the jobs of one owner; with `fail`, some jobs have failed.
    """
    is_postgres = url.startswith("postgres")
    numbers = POSTGRES_NUMBERS if is_postgres else SQLITE_NUMBERS
    failed = f"(i / {owners}) % {FAILED} = 0" if fail else "i < 0"
    wanted = "i > 0" if only is None else f"i % {owners} = {only}"
    for first in range(1, count + 1, SLICE):
        last = min(first + SLICE - 1, count)
        written = JOBS.format(
            owners=owners,
            failed=failed,
            wanted=wanted,
            numbers=numbers.format(first=first, last=last),
        )
        _run(url, written)
        _run(url, EVENTS.format(first=first, last=last))
    if is_postgres:
        ask(url, "SELECT setval('jobs_seq_seq', max(seq)) FROM jobs")


def _run(url: str, statement: str) -> None:
    if url.startswith("postgres"):
        ask(url, statement)
        return
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
