"""No statement of the hot path reads history: each is served by an index."""

from dataclasses import asdict

import pytest

from backburner.domain.jobs.job import JobState
from backburner.ports.store.maintenance import JobFilter
from backburner.stores.shared import (
    batches,
    dead_letter_exports,
    dead_letters,
    depths,
    flows,
    listing,
)
from backburner.stores.sqlite.database import driver
from backburner.stores.sqlite.queries import Queries
from backburner.testing.samples import ANN

QUERIES = asdict(Queries.load())
BY_NUMBER = "jobs USING INTEGER PRIMARY KEY"
OF_RUNNING = "SCAN jobs USING COVERING INDEX jobs_running"


@pytest.fixture
def connection(store):
    with store.database.connect_reader() as connection:
        yield connection


def the_plan(connection, statement):
    places = [n for n in range(1, 10) if f"?{n}" in statement]
    nothing = [None] * max(places, default=statement.count("?"))
    rows = driver(connection).execute(f"EXPLAIN QUERY PLAN {statement}", nothing)
    return [row[3] for row in rows]


def in_state(state):
    return JobFilter(state=JobState(state))


def the_statements(connection, read):
    seen = []
    driver(connection).set_trace_callback(seen.append)
    read(connection)
    driver(connection).set_trace_callback(None)
    return seen


def test_a_check_of_a_state_fills_no_table_for_each_row(connection):
    indexes = driver(connection).execute(
        "SELECT count(*) FROM sqlite_master"
        " WHERE tbl_name = 'jobs' AND type = 'index' AND sql LIKE '%state IN (%'"
    )
    steps = driver(connection).execute("EXPLAIN UPDATE jobs SET state = 'queued'")
    tables = [row[1] for row in steps].count("OpenEphemeral")

    # An index of some jobs only looks at both rows, if the job is one of them.
    assert 2 * indexes.fetchone()[0] == tables


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("claim_jobs", "SEARCH jobs USING INDEX jobs_ready (queue=?)"),
        ("claim_jobs", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("finish_jobs", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("settle_jobs", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("move_jobs", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("report_notes", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("insert_events", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("insert_start_events", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("insert_state_events", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("insert_handed_events", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("hand_on_jobs", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("list_dependents", "SEARCH edges USING PRIMARY KEY (prerequisite=?)"),
        ("first_queued", "SEARCH jobs USING INDEX jobs_ready (queue=?)"),
        ("insert_submit_events", f"SEARCH {BY_NUMBER} (rowid>? AND rowid<?)"),
        ("promote_jobs", "SEARCH jobs USING INDEX jobs_due (run_at<?)"),
        ("next_due", "SEARCH jobs USING INDEX jobs_due"),
        ("has_queued", "SEARCH jobs USING INDEX jobs_ready (queue=?)"),
        ("list_held", "SEARCH jobs USING INDEX jobs_running (worker=?)"),
        (
            "delete_jobs",
            "SEARCH jobs USING INDEX jobs_ended (finished_at>? AND finished_at<?)",
        ),
        ("delete_events", "SEARCH events USING INDEX events_by_job (job=?)"),
        ("list_history", "SEARCH events USING INDEX events_by_job (job=? AND n>?)"),
        ("list_news", "SEARCH events USING INDEX events_by_job (job=? AND n>?)"),
        ("release_jobs", "SEARCH edges USING PRIMARY KEY (prerequisite=?)"),
        ("release_jobs", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("cancel_dependents", "SEARCH edges USING PRIMARY KEY (prerequisite=?)"),
        ("cancel_dependents", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("conclude_flows", "SEARCH flows USING INTEGER PRIMARY KEY (rowid=?)"),
        ("conclude_flows", "SEARCH jobs USING INDEX jobs_by_step (flow=?)"),
        ("insert_flow_ends", "SEARCH flows USING INTEGER PRIMARY KEY (rowid=?)"),
        ("list_callbacks", f"SEARCH {BY_NUMBER} (rowid=?)"),
        ("list_estimates", f"SEARCH {BY_NUMBER} (rowid=?)"),
        (
            "count_waiting",
            ("SEARCH jobs USING INDEX jobs_waiting (queue=? AND tenant=? AND share=?)"),
        ),
        (
            "read_share",
            (
                "SEARCH s USING INDEX sqlite_autoindex_shares_1 "
                "(queue=? AND priority=? AND tenant=? AND name=?) LEFT-JOIN"
            ),
        ),
        (
            "list_needs",
            "SEARCH e USING COVERING INDEX edges_by_dependent (dependent=?)",
        ),
        ("list_needs", "SEARCH p USING INTEGER PRIMARY KEY (rowid=?)"),
        (
            "find_by_key",
            (
                "SEARCH jobs USING INDEX jobs_idempotency "
                "(tenant=? AND user=? AND idempotency_key=?)"
            ),
        ),
    ],
)
def test_a_statement_finds_its_rows_by_an_index(connection, name, step):
    assert step in the_plan(connection, QUERIES[name])


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_no_statement_scans_the_jobs_or_the_events(connection, name):
    plan = the_plan(connection, QUERIES[name])
    large = ("jobs", "events", "flows", "edges")
    scans = [s for s in plan if s.startswith(tuple(f"SCAN {table}" for table in large))]

    # The index of running jobs holds no history.
    assert [] == [s for s in scans if s != OF_RUNNING]


def test_running_jobs_are_counted_without_reading_them(connection):
    assert [OF_RUNNING] == the_plan(connection, QUERIES["count_running"])


@pytest.mark.parametrize("name", ["claim_jobs", "promote_jobs", "list_history"])
def test_what_is_taken_in_order_is_not_sorted(connection, name):
    plan = the_plan(connection, QUERIES[name])

    assert [] == [step for step in plan if "TEMP B-TREE" in step]


def names_a_group(step):
    """Say whether a step only looks up the id of a job's flow or batch, by its key."""
    keyed = (
        "SEARCH flows USING INTEGER PRIMARY KEY",
        "SEARCH batches USING INTEGER PRIMARY KEY",
    )
    return step.startswith(("CORRELATED SCALAR SUBQUERY", *keyed))


@pytest.mark.parametrize(
    ("read", "indexes"),
    [
        (lambda c: listing.find(c, ["job_1"]), {"sqlite_autoindex_jobs_1"}),
        (lambda c: listing.overdue(c, 1, 9), {"jobs_expiring"}),
        (
            lambda c: listing.orphans(c, 9),
            {"jobs_running", "sqlite_autoindex_workers_1"},
        ),
        (lambda c: dead_letters.failures(c, ANN, 9), {"jobs_failed_by_owner"}),
        (dead_letters.dead_letters, {"jobs_failed_by_owner"}),
        (
            depths.depths,
            {
                *("flows_running", "jobs_by_step", "jobs_due", "jobs_ready"),
                *("jobs_running", "jobs_suspended"),
            },
        ),
        (
            lambda c: listing.jobs(c, in_state("blocked"), None, 9),
            {"flows_running", "jobs_by_step"},
        ),
        (lambda c: listing.jobs(c, in_state("running"), None, 9), {"jobs_running"}),
        (lambda c: listing.jobs(c, in_state("failed"), 7, 9), {"jobs_failed_by_owner"}),
        (
            lambda c: listing.jobs(c, JobFilter(ANN), 7, 9),
            {"events_first_by_owner"},
        ),
        (lambda c: flows.steps(c, 1), {"jobs_by_step", "edges_by_dependent"}),
        (
            lambda c: batches.counts(c, 1),
            {"jobs_by_batch_state", "flows_by_batch", "jobs_by_step"},
        ),
        (
            lambda c: batches.over(c, 0, 9),
            {"batches_open", "flows_by_batch", "jobs_by_batch_state"},
        ),
        (lambda c: dead_letter_exports.failures(c, 1, 9, 9), {"events_failed"}),
        (
            lambda c: c.execute(dead_letter_exports.NEWS).all(),
            {"events_failed", "sqlite_autoindex_marks_1"},
        ),
    ],
)
def test_a_list_of_a_few_is_found_by_its_index(connection, read, indexes):
    plans = [the_plan(connection, one) for one in the_statements(connection, read)]
    steps = [s for plan in plans for s in plan if "INDEX" in s or "SCAN" in s]
    # Dead letters are counted in what the index gave, up to a limit.
    given = ("SCAN failed", "SCAN (subquery", "SCAN anon_1")
    steps = [s for s in steps if not names_a_group(s) and not s.startswith(given)]

    assert indexes == {step.partition("INDEX ")[2].split(" ")[0] for step in steps}


def test_what_waits_is_counted_by_its_index(connection):
    [statement] = the_statements(connection, lambda c: depths.waiting(c, 9))

    plan = [step for step in the_plan(connection, statement) if " jobs " in step]

    assert 3 == len(plan)
    assert all("SEARCH jobs USING INDEX jobs_ready" in step for step in plan), plan


def test_a_list_of_many_walks_back_from_the_newest(connection):
    [statement] = the_statements(
        connection, lambda c: listing.jobs(c, in_state("succeeded"), None, 9)
    )

    plan = the_plan(connection, statement)

    assert ["SCAN jobs"] == [step for step in plan if not names_a_group(step)]
