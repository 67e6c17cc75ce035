"""Steps find each other by index on PostgreSQL, also by plans that were kept."""

import json
import math

import asyncpg
import pytest

from backburner.ports.faults import NoFaults
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres import database
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.store import PostgresStore
from backburner.testing.samples import NOON, a_new_flow, a_new_step
from backburner.testing.store.linked import BAD, CALLBACK, Course, Hands

FILL = """
INSERT INTO flows (id, tenant, "user", state, created_at, active, troubled, steps)
SELECT 'xf' || n, 'acme', 'ann', 'running', n, 1, n % 9 = 0, 5
  FROM generate_series(1, {flows}) AS n;
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, finished_at, input, output,
                  flow, step, needs, open)
SELECT 'xj' || seq || '_' || n, 'acme', 'ann', 'greet', 'other',
       CASE WHEN n = 4 THEN 'blocked' WHEN n = 3 THEN 'queued' ELSE 'succeeded' END,
       0, n, 3, n, n, CASE WHEN n < 3 THEN n END, '{{}}', CASE WHEN n < 3 THEN '1' END,
       seq, 's_' || n, 1, CASE WHEN n = 4 THEN 1 ELSE 0 END
  FROM flows, generate_series(0, 4) AS n WHERE id LIKE 'xf%';
INSERT INTO edges (prerequisite, dependent, continues)
SELECT seq, seq + 1, false FROM jobs WHERE id LIKE 'xj%' AND step <> 's_4';
INSERT INTO events (job, n, type, at)
SELECT seq, 1, 'job.queued', 0 FROM jobs WHERE id LIKE 'xj%';
"""
SEQS = [50_000, 50_001]
ARGUMENTS = {
    "release_jobs": [SEQS, [50_002], NOON],
    "cancel_dependents": [SEQS, NOON, "{}", "NO"],
    "count_down_flows": [SEQS, [1, 1], [False, True], NOON],
    "conclude_flows": [SEQS, NOON],
    "insert_flow_ends": [SEQS],
    "insert_events": [SEQS, ["a", "b"], SEQS, ["a", "b"]],
    "list_callbacks": [SEQS],
    "list_needs": [SEQS],
}
LARGE = {"jobs", "events", "edges", "flows"}


def scans(node):
    """Return the large tables that a plan reads from end to end."""
    read = node["Node Type"] in {"Seq Scan", "Index Scan", "Index Only Scan"}
    is_whole = read and "Index Cond" not in node
    found = {node["Relation Name"]} & LARGE if is_whole else set()
    return found.union(*(scans(child) for child in node.get("Plans", ())))


async def explain(connection, statement, *arguments):
    told = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {statement}", *arguments)
    # A lane's driver reads JSON by itself.
    return (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]


@pytest.fixture
async def admin(migrated_url):
    """A session beside the store; nobody else looks at how large the tables are."""
    connection = await asyncpg.connect(migrated_url)
    for table in LARGE:
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    yield connection
    await connection.close()


async def test_among_a_hundred_thousand_steps_each_is_found_by_an_index(admin):
    await admin.execute(FILL.format(flows=20_000))
    await admin.execute("ANALYZE")
    queries = Queries.load()
    plans = {
        name: await explain(admin, getattr(queries, name), *arguments)
        for name, arguments in ARGUMENTS.items()
    }

    assert 100_000 == await admin.fetchval("SELECT count(*) FROM jobs")
    assert {} == {name: found for name, p in plans.items() if (found := scans(p))}


@pytest.fixture
async def store(migrated_url):
    store = PostgresStore(migrated_url, faults=NoFaults())
    await store.open()
    await store.enlist(WorkerInfo("w_1", "here", 1, 8, ("default",), started_at=NOON))
    yield store
    await store.close()


async def run_a_few(store):
    """Have every statement of the lanes be run, for good and for bad."""
    for outcome in ({}, {"outcome": BAD}):
        flow = a_new_flow(
            a_new_step("a", callback=CALLBACK),
            a_new_step("b", "a"),
            a_new_step("c", "b"),
        )
        await store.submit_flows([flow])
        course = Course(Hands(store), flow.id)
        await course.end("a")
        await course.end("b", **outcome)
        if not outcome:
            await course.end("c")


async def kept_plans(lane):
    """Return what a lane's statements read from end to end, by the plans it keeps."""
    queries = Queries.load()
    names = {getattr(queries, name): name for name in (*ARGUMENTS, "finish_jobs")}
    found = {}
    for row in await lane.driver.fetch("SELECT * FROM pg_prepared_statements"):
        if row["statement"] in names:
            nothing = ", ".join(["NULL"] * len(row["parameter_types"]))
            kept = await explain(lane.driver, f'EXECUTE "{row["name"]}" ({nothing})')
            found[names[row["statement"]]] = scans(kept)
    return found


@pytest.mark.parametrize("seconds", [0, math.inf], ids=["anew", "kept"])
async def test_a_plan_from_when_the_tables_were_empty_is_not_kept(
    admin, store, monkeypatch, seconds
):
    await admin.execute("VACUUM ANALYZE")
    monkeypatch.setattr(database, "REPLAN_SECONDS", seconds)
    await store.ping()
    await run_a_few(store)
    lanes = store._settling, store._claiming
    for lane in lanes:
        await lane.driver.execute("SET plan_cache_mode = force_generic_plan")
    await run_a_few(store)
    await admin.execute(FILL.format(flows=4_000))
    await run_a_few(store)
    found = {}
    for lane in lanes:
        found |= await kept_plans(lane)

    assert {"release_jobs", "cancel_dependents", "list_needs"} <= {*found}
    is_read_whole = any(found.values())
    assert is_read_whole == (seconds == math.inf), found
