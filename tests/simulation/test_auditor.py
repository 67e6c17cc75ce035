"""The auditor finds what is wrong, and nothing where all is right."""

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from backburner.domain.jobs.job import Claim
from backburner.domain.jobs.outcome import Done, Failed, Outcome
from backburner.domain.jobs.transitions import Limits, settle
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.auditor import Answer, Ledger, Reading, audit
from backburner.testing.doubles import NOON, FrozenClock
from backburner.testing.samples import a_new_job

pytestmark = pytest.mark.thorough

JOB = "job_audited"
STORY = [
    (1, "job.scheduled"),
    (2, "job.queued"),
    (3, "job.started"),
    (4, "job.retrying"),
    (5, "job.queued"),
    (6, "job.started"),
    (7, "job.succeeded"),
]
LATE = NOON + 60_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store at rest: one job, which came late, failed once and succeeded."""
    path = tmp_path / "audited.db"
    asyncio.run(live(path))
    return path


async def live(path: Path) -> None:
    store = SqliteStore(Database(path), FrozenClock())
    await store.open()
    await store.enlist(WorkerInfo("w_1", "here", 1, 1, ("default",), NOON))
    await store.submit([a_new_job(id=JOB, run_at=NOON + 5, deadline=LATE)])
    await store.promote(now=NOON + 5, limit=1)
    await work(store, "a" * 16, Failed("OOPS", "no luck"))
    await store.promote(now=NOON + 10, limit=1)
    await work(store, "b" * 16, Done("1"))
    await store.close()


async def work(store: SqliteStore, token: str, outcome: Outcome) -> None:
    claim: Claim
    [claim] = await store.claim(
        "w_1", token, [ClaimRequest("default", 1)], now=NOON + 10
    )
    change = settle(claim, outcome, now=NOON + 10, backoff=timedelta(), limits=Limits())
    await store.settle([Settlement(claim.seq, token, change)])


def tamper(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)
    connection.close()


def broken(path: Path, ledger: Ledger | None = None) -> list[str]:
    return sorted({breach.invariant for breach in audit(path, ledger or Ledger())})


def test_a_store_that_kept_its_promises_has_no_breach(path: Path) -> None:
    ledger = Ledger(
        effective=[JOB], effects=[(JOB, 0)], readings=[Reading(JOB, STORY, True)]
    )
    ledger.acknowledge(JOB, "key", "body")
    ledger.refuse("key", "another body")

    assert [] == audit(path, ledger)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE jobs SET state = 'queued', output = NULL", ["I2", "I4"]),
        ("UPDATE jobs SET output = NULL", ["I2"]),
        ("DELETE FROM events WHERE n = 7", ["I4", "I5", "events", "totals"]),
        ("DELETE FROM jobs", ["events", "totals"]),
        ("UPDATE events SET n = 8 WHERE n = 7", ["events"]),
        ("UPDATE events SET type = 'job.progress' WHERE n = 5", ["I4"]),
        ("UPDATE events SET type = 'job.cancelled' WHERE n = 1", ["I4", "totals"]),
        ("UPDATE events SET type = 'job.cancelled' WHERE n = 4", ["I4", "totals"]),
        ("UPDATE totals SET n = n + 1", ["totals"]),
        ("UPDATE jobs SET generation = 1", ["I4", "I5"]),
        ("UPDATE jobs SET attempt = 1", ["I5"]),
        ("UPDATE jobs SET crashes = 1", ["I5"]),
        ("UPDATE jobs SET max_attempts = 1", ["I5"]),
        ("UPDATE events SET at = at - 10 WHERE n = 5", ["times"]),
        ("UPDATE events SET at = at + 60000 WHERE n = 3", ["times"]),
    ],
)
def test_rows_that_tell_of_a_broken_promise_are_found(
    path: Path, statement: str, expected: list[str]
) -> None:
    tamper(path, statement)

    assert expected == broken(path)


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (Ledger(acknowledged=["job_lost"]), ["I1"]),
        (Ledger(acknowledged=["job_old"], pruned=["job_old"]), []),
        (Ledger(effective=[JOB]), ["I3"]),
        (Ledger(effective=[JOB], effects=[(JOB, 0), (JOB, 0)]), ["I3"]),
        (Ledger(effective=[JOB], effects=[(JOB, 1)]), ["I3"]),
        (Ledger(answers=[Answer("k", "a", JOB), Answer("k", "a", "job_2")]), ["I7"]),
        (Ledger(answers=[Answer("k", "a", JOB), Answer("k", "b", JOB)]), ["I7"]),
        (Ledger(answers=[Answer("k", "a", JOB), Answer("k", "a", None)]), ["I7"]),
        (Ledger(stream=[1, 2, 3, 4, 5, 6, 7]), []),
        (Ledger(stream=[1, 2, 3, 4, 6, 7]), ["readers"]),
        (Ledger(stream=[1, 2, 3, 4, 5, 6, 7, 7]), ["readers"]),
        (Ledger(readings=[Reading(JOB, STORY[:2], False)]), []),
        (Ledger(readings=[Reading(JOB, STORY[:2], True)]), ["readers"]),
        (Ledger(readings=[Reading(JOB, STORY[1:], True)]), ["readers"]),
        (Ledger(readings=[Reading(JOB, STORY + STORY[-1:], True)]), ["readers"]),
    ],
)
def test_a_ledger_that_knows_better_is_believed(
    path: Path, ledger: Ledger, expected: list[str]
) -> None:
    assert expected == broken(path, ledger)


def stream(path: Path, *, epoch: int = 6, offset: int = 0, output: str = "1") -> None:
    """Have the last attempt say "1" before its end."""
    data = f'{{"epoch": {epoch}, "offset": {offset}, "text": "1"}}'
    tamper(path, "UPDATE events SET n = 8, seq = seq + 10 WHERE n = 7")
    tamper(
        path,
        "INSERT INTO events (seq, job, n, type, at, data) "  # noqa: S608 - ours
        f"VALUES (7, 1, 7, 'job.output.delta', 0, '{data}')",
    )
    tamper(path, f"UPDATE jobs SET events = 8, output = '\"{output}\"'")  # noqa: S608


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, []),
        ({"offset": 1}, ["text"]),
        ({"epoch": 3}, ["text"]),
        ({"epoch": 9}, ["text"]),
        ({"output": "2"}, ["text"]),
    ],
)
def test_text_that_is_missing_or_anothers_or_not_the_result_is_found(
    path: Path, how: dict[str, Any], expected: list[str]
) -> None:
    stream(path, **how)

    assert expected == broken(path, Ledger(streamed=[JOB]))


def test_a_job_that_stalled_too_often_is_found(path: Path) -> None:
    tamper(path, "UPDATE events SET type = 'job.stalled' WHERE n = 4")
    tamper(path, "DELETE FROM events WHERE n = 5")
    tamper(path, "UPDATE events SET n = n - 1 WHERE n > 5")
    tamper(path, "UPDATE jobs SET events = 6, crashes = 1")

    told = [str(breach.told) for breach in audit(path, Ledger(), Limits(crashes=0))]

    assert any("the limit is 0" in line for line in told)
