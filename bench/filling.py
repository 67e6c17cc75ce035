"""A table of jobs as it is after days of use, for `bench.dashboard`."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from typing import Final

from backburner.clock import SystemClock
from bench.servers import ask

SLICE: Final = 50_000
SPACING_MS: Final = 400
"""How far jobs are apart: a million of them were submitted within five days."""
USERS: Final = 97
FAR: Final = 4_000_000_000_000
LONG: Final = 20_000
"""How many events a long job has."""
MOST_STEPS: Final = 10_000
"""Of the flow `flow_1`; in a small store a fifth of the jobs."""

# 94 % of the jobs succeeded, and each other state has its share: of every 10,000 jobs
# one runs and two are blocked, each by the waiting job before it. Such a pair is a flow
# that runs, of the same user; unless both are steps of `flow_1`, which runs too.
PAIRED: Final = "i % 10000 IN (1998, 1999, 2998, 2999)"
STATES: Final = """CASE WHEN i % 1000 < 940 THEN 'succeeded'
  WHEN i % 1000 < 970 THEN 'failed' WHEN i % 1000 < 990 THEN 'cancelled'
  WHEN i % 1000 < 994 THEN 'scheduled' WHEN i % 1000 < 998 THEN 'queued'
  WHEN i % 1000 < 999 THEN 'waiting'
  WHEN i % 10000 < 1000 THEN 'running'
  WHEN i % 10000 < 3000 THEN 'blocked' ELSE 'succeeded' END"""
JOBS: Final = f"""
INSERT INTO jobs (seq, id, tenant, "user", capability, queue, state, worker, token,
  priority, rank, attempt, max_attempts, events, created_at, ready_at, run_at,
  started_at, finished_at, input, output, error_code, fingerprint, tags,
  metadata, flow, step, batch, open)
SELECT i, 'job_' || i,
  CASE WHEN i % 10 = 0 AND i > 2 * {{steps}} THEN 'other' ELSE 'default' END,
  'u' || CASE WHEN {PAIRED} THEN i / 1000 % {{users}} ELSE i % {{users}} END,
  CASE WHEN i % 50000 = 7 THEN 'bench.rare'
    WHEN i % 25000 = 953 THEN 'webhook.deliver' ELSE 'bench.c' || (i % 20) END,
  'q' || (i % 5), state,
  CASE WHEN state = 'running' THEN 'w_bench' END,
  CASE WHEN state = 'running' THEN 't' END,
  0, i, CASE WHEN state = 'blocked' THEN 0 ELSE 1 END, 3,
  CASE WHEN i = 17 THEN {LONG} WHEN state = 'blocked' THEN 1 ELSE 3 END, made, made,
  CASE WHEN state IN ('scheduled', 'waiting') THEN {FAR} END,
  CASE WHEN state <> 'blocked' THEN made END,
  CASE WHEN state IN ('succeeded', 'failed', 'cancelled') THEN made END,
  '{"x" * 200}', CASE WHEN state = 'succeeded' THEN '1' END,
  CASE WHEN state = 'failed' THEN 'E' || (i % 7) END,
  CASE WHEN state = 'failed' THEN 'f' || (i % 7) END,
  CASE WHEN i % 100000 = 11 THEN 'rare' ELSE 't' || (i % 50) END,
  CASE WHEN i % 100000 = 11 THEN '{{{{"order":"rare"}}}}'
    WHEN i % 2 = 0
      THEN '{{{{"kind":"k' || (i % 50) || '","order":"A-' || i || '"}}}}' END,
  CASE WHEN i <= {{steps}} THEN 1 WHEN {PAIRED} THEN i / 1000 END,
  CASE WHEN i <= {{steps}} OR {PAIRED} THEN 's' || i END,
  CASE WHEN i > {{steps}} AND i <= 2 * {{steps}} AND NOT {PAIRED} THEN 1 END,
  CASE WHEN state = 'blocked' THEN 1 ELSE 0 END
FROM (SELECT i, {STATES} AS state, {{now}} - ({{count}} - i) * {SPACING_MS} AS made
        FROM ({{numbers}}) AS n) AS m
"""
EVENTS: Final = """
INSERT INTO events (job, n, type, at, tenant, "user", data)
SELECT seq, k.column1,
       'job.' || CASE state WHEN 'blocked' THEN state
                            ELSE coalesce(k.column2, state) END,
       created_at, tenant, "user", k.column3
  FROM jobs, (VALUES (1, 'queued', NULL), (2, 'started', '{run}'),
                     (3, NULL, NULL)) AS k
 WHERE seq BETWEEN {first} AND {last} AND (state <> 'blocked' OR k.column1 = 1)
 ORDER BY seq, k.column1
"""
RUN: Final = '{"attempt": 1, "generation": 0, "worker": "w_bench"}'
CALLS: Final = """
INSERT INTO usages (job, generation, epoch, n, at, tenant, "user", capability, tags,
  model, provider, input_tokens, output_tokens, cached_tokens, cost, price_version,
  late)
SELECT seq, 0, 2, 0, created_at, tenant, "user", capability, tags, 'm' || (seq % 5),
       'bench', 900, 100, 0, 1000 + seq % 1000, '1', FALSE
  FROM jobs WHERE seq BETWEEN {first} AND {last} AND seq % 4 < 1
"""
QUESTIONS: Final = """
INSERT INTO waits (job, generation, name, kind, until, asked_at, question)
SELECT seq, 0, 'approve', 'question', NULL, created_at, '{{"question": "Go on?"}}'
  FROM jobs WHERE seq BETWEEN {first} AND {last} AND state = 'waiting'
"""
LONG_EVENTS: Final = """
INSERT INTO events (job, n, type, at, tenant, "user", data)
SELECT 17, i, 'job.progress', {now}, 'default', 'u' || (17 % {users}),
       '{{"progress": 1}}'
  FROM ({numbers}) AS n
"""
"""Of the job `job_17`, from its fourth event on."""
EDGES: Final = """
INSERT INTO edges (prerequisite, dependent, continues)
SELECT 1, i, FALSE FROM ({numbers}) AS n
"""
BLOCKED: Final = """
INSERT INTO edges (prerequisite, dependent, continues)
SELECT seq - 1, seq, FALSE FROM jobs
 WHERE seq BETWEEN {first} AND {last} AND state = 'blocked'
"""
GROUPS: Final = """
INSERT INTO {table} (seq, id, tenant, "user", state, created_at, finished_at,
                     {columns})
SELECT i, '{name}_' || i,
       CASE WHEN i > 1 AND i % 10 = 0 THEN 'other' ELSE 'default' END,
       'u' || (i % {users}), {state}, {now} - ({count} - i) * 1000,
       CASE WHEN {state} IN ('running', 'open') THEN NULL ELSE {now} END, {values}
  FROM ({numbers}) AS n
"""
FLOWS: Final = {
    "table": "flows",
    "name": "flow",
    "columns": "active, steps, troubled",
    "values": """(SELECT count(*) FROM jobs WHERE flow = i
                   AND state IN ('scheduled', 'queued', 'waiting', 'running')),
      CASE WHEN i = 1 THEN {steps} ELSE 3 END, FALSE""",
    "state": """CASE WHEN i IN (SELECT flow FROM jobs WHERE state = 'blocked')
      THEN 'running' WHEN i % 100 = 2 THEN 'failed' ELSE 'succeeded' END""",
}
BATCHES: Final = {
    "table": "batches",
    "name": "batch",
    "columns": "sealed",
    "values": "TRUE",
    "state": "'finished'",
}
WORKER: Final = """
INSERT INTO workers (id, host, pid, slots, queues, started_at, beat_at)
VALUES ('w_bench', 'here', 1, 1000, 'q0', 0, {now})
ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at
"""
BEAT_SECONDS: Final = 2.0
SMALL: Final = (
    """
INSERT INTO audit (at, tenant, actor, action, target)
SELECT i, 'default', 'key:bench', 'job.cancelled', 'job_' || i
  FROM ({hundred_thousand}) AS n""",
    """
INSERT INTO api_keys (id, name, tenant, "user", scopes, digest, created_at)
SELECT 'key_' || i, 'of bench', 'default', 'u' || (i % {users}), 'jobs:read', 'x', i
  FROM ({thousand}) AS n""",
    """
INSERT INTO endpoints (id, tenant, "user", url, version, created_at)
SELECT 'ep_' || i, 'default', 'u' || (7 % {users}), 'https://example.com/' || i, 1, i
  FROM ({thousand}) AS n""",
    """
INSERT INTO schedules (name, capability, cron, timezone, missed, next_at, paused)
SELECT 's' || i, 'bench.c1', '0 0 1 1 *', 'UTC', 'skip', 4000000000000, TRUE
  FROM ({hundred}) AS n""",
    """
INSERT INTO lanes (name, spacing, state) SELECT 'bench/m' || i, 0, '{{}}'
  FROM ({hundred}) AS n""",
    """
INSERT INTO budgets (scope, value, unit, per, ceiling, is_declared)
VALUES ('user', '', 'money', 86400000, 1000000000, FALSE),
       ('capability', '', 'tokens', 3600000, 1000000000, FALSE)""",
    """
INSERT INTO accounts (scope, unit, per, tenant, value, window_at, ceiling, settled)
SELECT 'user', 'money', 86400000, 'default', 'u' || (i % {users}),
       ({now} / 86400000 - i / {users}) * 86400000, 1000000000, 1000 * i
  FROM ({ten_thousand}) AS n""",
)


@contextlib.contextmanager
def working(url: str) -> Iterator[None]:
    """
    Keep the worker `w_bench` alive, which runs some of the jobs.

    Without it, a server takes these jobs as stalled and queues them again.
    """
    if _is_postgres(url):
        _run(url, WORKER.format(now=FAR))
        yield
        return
    stopped = threading.Event()

    def beat() -> None:
        while not stopped.wait(BEAT_SECONDS):
            _run(url, WORKER.format(now=_uptime()))

    _run(url, WORKER.format(now=_uptime()))  # SQLite: a beat from the future is void
    beating = threading.Thread(target=beat)
    beating.start()
    try:
        yield
    finally:
        stopped.set()
        beating.join()


def _uptime() -> int:
    return SystemClock().monotonic()


def fill(url: str, count: int, now: int, users: int = USERS) -> None:
    """Write jobs in all states, of many users, capabilities, tags and metadata."""
    for statement in _statements(url, count, now, users):
        _run(url, statement)
    if _is_postgres(url):
        for table in ("jobs", "events", "flows", "batches"):
            named = f"pg_get_serial_sequence('{table}', 'seq')"
            ask(url, f"SELECT setval({named}, max(seq)) FROM {table}")
        ask(url, "VACUUM ANALYZE")


def steps(count: int) -> int:
    """Return the number of steps of `flow_1`, and of members of `batch_1`."""
    return min(MOST_STEPS, count // 5)


def _statements(url: str, count: int, now: int, users: int) -> Iterator[str]:
    size = steps(count)
    for first in range(1, count + 1, SLICE):
        last = min(first + SLICE - 1, count)
        some = _numbers(url, first, last)
        yield JOBS.format(now=now, count=count, steps=size, numbers=some, users=users)
        for statement in (EVENTS, CALLS, QUESTIONS, BLOCKED):
            yield statement.format(first=first, last=last, run=RUN)
    numbers = _numbers(url, 4, LONG)
    yield LONG_EVENTS.format(now=now, numbers=numbers, users=users)
    yield EDGES.format(numbers=_numbers(url, 2, size))
    most = min(20_000, count)
    for groups in (FLOWS, BATCHES):
        numbers = _numbers(url, 1, most)
        statement = GROUPS.format(
            now=now, count=most, numbers=numbers, users="{users}", **groups
        )
        yield statement.format(steps=size, users=users)
    many = {
        "hundred": _numbers(url, 1, 100),
        "thousand": _numbers(url, 1, 1_000),
        "ten_thousand": _numbers(url, 1, 10_000),
        "hundred_thousand": _numbers(url, 1, min(100_000, 10 * count)),
    }
    for statement in SMALL:
        yield statement.format(now=now, users=users, **many)


def _is_postgres(url: str) -> bool:
    return url.startswith("postgres")


def _numbers(url: str, first: int, last: int) -> str:
    if _is_postgres(url):
        return f"SELECT generate_series({first}, {last}) AS i"
    return (
        f"WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL"
        f" SELECT i + 1 FROM n WHERE i < {last}) SELECT i FROM n"
    )


def _run(url: str, statement: str) -> None:
    if _is_postgres(url):
        ask(url, statement)
        return
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
