"""No statement of the hot path reads history on PostgreSQL either."""

import asyncpg
import pytest

from backburner.ports.faults import NoFaults
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared import dead_letter_exports, dead_letters, depths
from backburner.testing.samples import NOON

FILL = """
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, finished_at, input, output)
SELECT 'job_' || n, 'acme', 'ann', 'greet', 'default',
       CASE WHEN n % 100 = 0 THEN 'queued' ELSE 'succeeded' END, 0, n, 3, n, n,
       CASE WHEN n % 100 = 0 THEN NULL ELSE n END, '{}',
       CASE WHEN n % 100 = 0 THEN NULL ELSE '1' END
  FROM generate_series(1, 10000) AS n;
INSERT INTO events (job, n, type, at) SELECT seq, 1, 'job.queued', rank FROM jobs;
ANALYZE;
"""
SEQS = [5, 9]
WORDS = ["a", "b"]
ARGUMENTS = {
    "claim_jobs": ["token", "worker", NOON, "default", 10, False],
    "finish_jobs": [SEQS, WORDS, WORDS, NOON],
    "settle_jobs": [
        *(SEQS, WORDS, WORDS, SEQS, SEQS, WORDS, WORDS, WORDS, WORDS, SEQS, SEQS),
        *(SEQS, SEQS, WORDS, WORDS, WORDS),
    ],
    "report_notes": [SEQS, WORDS, SEQS, SEQS, WORDS, WORDS],
    "promote_jobs": [NOON, 10],
    "has_overdue": [NOON],
    "list_held": ["w"],
    "list_history": ["job_7", 0, 10],
    "list_news": [SEQS, SEQS, 10],
    "event_horizon": [],
    "oldest_event_writer": [],
    "find_by_key": ["acme", "ann", "k"],
    "list_shares": [WORDS, SEQS, WORDS, WORDS],
    "take_shares": [WORDS, SEQS, WORDS, WORDS, SEQS, False],
    "count_waiting": ["default", "acme", "ann", 10],
    "list_estimates": [SEQS],
}


@pytest.fixture
async def server(postgres_url):
    """A table in which a hundred jobs wait among ten thousand."""
    store = PostgresStore(postgres_url, faults=NoFaults())
    await store.open()
    await store.close()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(FILL)
    yield connection, store.queries
    await connection.close()


async def the_plan(server, name):
    connection, queries = server
    statement = f"EXPLAIN (COSTS OFF) {getattr(queries, name)}"
    rows = await connection.fetch(statement, *ARGUMENTS[name])
    return "\n".join(row[0] for row in rows)


async def test_statements_find_their_rows_by_an_index(server):
    plans = {name: await the_plan(server, name) for name in ARGUMENTS}
    uses = {
        "claim_jobs": "Index Scan using jobs_ready on jobs",
        "finish_jobs": "Index Scan using jobs_pkey on jobs",
        "settle_jobs": "Index Scan using jobs_pkey on jobs",
        "report_notes": "Index Scan using jobs_pkey on jobs",
        "promote_jobs": "Index Scan using jobs_due on jobs",
        "has_overdue": "using jobs_expiring on jobs",
        "list_held": "using jobs_running on jobs",
        "list_history": "Index Scan using events_by_job on events",
        "list_news": "Index Scan using events_by_job on events",
        "event_horizon": "Index Only Scan Backward using events_pkey on events",
        "find_by_key": "using jobs_idempotency on jobs",
        "count_waiting": "using jobs_waiting on jobs",
        "list_estimates": "Index Scan using jobs_pkey on jobs",
    }

    assert {} == {name: plans[name] for name in uses if uses[name] not in plans[name]}
    assert [] == [
        name
        for name, plan in plans.items()
        if "Seq Scan on jobs" in plan or "Seq Scan on events" in plan
    ]


async def test_what_waits_is_counted_by_its_index_alone(server):
    connection, _ = server
    statement = str(depths.COUNT_WAITING).replace(":cap", "10")
    rows = await connection.fetch(f"EXPLAIN (COSTS OFF) {statement}")
    plan = "\n".join(row[0] for row in rows)

    assert "Index Only Scan using jobs_ready on jobs" in plan, plan
    assert "Seq Scan" not in plan, plan


async def test_dead_letters_are_counted_by_their_index_and_up_to_a_bound(server):
    connection, _ = server
    await connection.execute(
        "UPDATE jobs SET state = 'failed', output = NULL"
        " WHERE finished_at IS NOT NULL AND seq % 7 = 0"
    )
    await connection.execute("VACUUM ANALYZE jobs")
    statement = str(dead_letters.COUNT_DEAD).replace(":cap", "10")
    rows = await connection.fetch(f"EXPLAIN (COSTS OFF) {statement}")
    plan = "\n".join(row[0] for row in rows)

    assert "->  Limit" in plan, plan
    assert "Index Only Scan using jobs_failed_by_owner on jobs" in plan, plan


async def test_what_failed_is_found_by_its_index(server):
    connection, _ = server
    await connection.execute(
        "INSERT INTO events (job, n, type, at)"
        " SELECT seq, 2, 'job.failed', 1 FROM jobs WHERE seq % 1000 = 0;"
        "INSERT INTO marks (name, at, until) VALUES ('burials', 0, 0); ANALYZE"
    )
    asked = str(dead_letter_exports.FAILURES)
    for name in (":after", ":upto", ":limit"):
        asked = asked.replace(name, "100000")
    for statement in (
        asked,
        str(dead_letter_exports.NEWS).replace(":name_1", "'burials'"),
    ):
        rows = await connection.fetch(f"EXPLAIN (COSTS OFF) {statement}")
        plan = "\n".join(row[0] for row in rows)

        assert "using events_failed on events" in plan, plan
        assert "Seq Scan on events" not in plan, plan


async def test_a_claim_writes_only_two_indexes_that_hold_all_jobs(server):
    connection, _ = server
    rows = await connection.fetch(
        "SELECT indexrelid::regclass::text AS name FROM pg_index"
        " WHERE indrelid = 'jobs'::regclass AND indpred IS NULL"
    )

    # Each change of a state writes an entry of each of them.
    assert {"jobs_pkey", "jobs_id_key"} == {row["name"] for row in rows}


async def test_what_is_claimed_in_order_is_not_sorted(server):
    plan = await the_plan(server, "claim_jobs")

    chosen, _, rest = plan.partition("CTE taken")
    assert "jobs_ready" in chosen
    assert "Sort" not in chosen
    assert "Sort Key: taken_2.priority" in rest, "only the few lines' fronts are"


async def test_tables_that_change_much_are_vacuumed_by_count(server):
    connection, _ = server
    rows = await connection.fetch(
        "SELECT relname, reloptions FROM pg_class WHERE relname = ANY ($1)",
        ["jobs", "events", "workers", "fronts", "shares"],
    )
    shares = {
        row["relname"]: [o for o in row["reloptions"] if "vacuum_scale" in o]
        for row in rows
    }

    assert {
        "jobs": ["autovacuum_vacuum_scale_factor=0.01"],
        "events": ["autovacuum_vacuum_scale_factor=0.02"],
        "workers": ["autovacuum_vacuum_scale_factor=0"],
        "fronts": ["autovacuum_vacuum_scale_factor=0"],
        "shares": ["autovacuum_vacuum_scale_factor=0"],
    } == shares
