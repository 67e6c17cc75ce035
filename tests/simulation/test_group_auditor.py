"""The auditor finds what is wrong with flows, batches and deliveries."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from backburner.domain.groups.batch import Members
from backburner.domain.groups.flow import Edge, FlowState
from backburner.domain.jobs.job import JobState
from backburner.domain.webhooks.delivery import QUEUE
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.auditor import Ledger, audit
from backburner.testing.doubles import NOON, FrozenClock
from backburner.testing.groups import GroupReading, verdict
from backburner.testing.records import Edge as Line
from backburner.testing.samples import (
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import settlement
from backburner.testing.store.completions import FOLLOWED
from backburner.testing.store.linked import CALLBACK, GOOD, Collection, Course, Hands

FLOW, BATCH = "flow_audited", "batch_audited"
LATER = NOON + 60_000


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store at rest: a batch of a job and a flow, of which one step was retried."""
    path = tmp_path_factory.mktemp("audited") / "audited.db"
    asyncio.run(live(path))
    return path


@pytest.fixture
def path(lived: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "audited.db"
    with sqlite3.connect(lived) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    return copy


async def live(path: Path) -> None:
    store = SqliteStore(Database(path), FrozenClock())
    await store.open()
    await store.enlist(WorkerInfo("w_1", "here", 1, 1, ("default",), NOON))
    flow = a_new_flow(
        a_new_step("a"),
        a_new_step("b", "a"),
        a_new_step("c", Edge("b", continues=True), callback=FOLLOWED),
        a_new_step("d", "b", callback=CALLBACK),
        id=FLOW,
        callback=CALLBACK,
    )
    job = a_new_job()
    batch = a_new_batch(id=BATCH, callback=CALLBACK, completion="{}")
    await store.open_batch(batch, Members([job], [flow]))
    hands = Hands(store)
    course, group = Course(hands, FLOW), Collection(hands, BATCH)
    await course.end("a")
    await hands.end(job.id)
    await group.tell(now=NOON + 2_000)
    await course.fail("b")
    await course.end("c")
    await group.finish(a_new_job(tags=(f"batch:{BATCH}",)))
    await course.retry("b")
    await course.end("b")
    await group.tell(now=LATER)
    await course.end("d")
    await group.finish(a_new_job(tags=(f"batch:{BATCH}",)))
    await hands.end(*await hands.take())
    told = await store.claim("w_1", "told", [ClaimRequest(QUEUE, 99)], now=NOON)
    told += await store.claim("w_1", "after", [ClaimRequest("after", 9)], now=NOON)
    await store.settle([settlement(claim, GOOD) for claim in told])
    await store.close()


def tamper(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            connection.execute(statement)
    connection.close()


def broken(path: Path, ledger: Ledger | None = None) -> list[str]:
    return sorted({breach.invariant for breach in audit(path, ledger or Ledger())})


def test_a_store_that_kept_its_promises_has_no_breach(path: Path) -> None:
    assert [] == audit(path, Ledger(acknowledged=[FLOW, BATCH]))


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE flows SET state = 'running'", ["I9", "I10"]),
        ("UPDATE flows SET state = 'cancelled'", ["I9", "I10"]),
        ("UPDATE flows SET generation = 2", ["I9"]),
        ("UPDATE flows SET events = events + 1", ["I9"]),
        (
            "UPDATE events SET type = 'flow.cancelled' WHERE type = 'flow.failed'",
            ["I8", "I9"],
        ),
        (
            "UPDATE events SET type = 'flow.failed' WHERE type = 'flow.reopened'",
            ["I8", "I9"],
        ),
        ("UPDATE edges SET continues = 1", ["I9"]),
        (
            (
                "UPDATE events SET seq = seq + 99 WHERE type = 'job.succeeded' "
                "AND job = (SELECT seq FROM jobs WHERE step = 'b')"
            ),
            ["I9"],
        ),
        ("DELETE FROM flows", ["I10", "events", "prune"]),
        ("INSERT INTO edges VALUES (98, 99, 0)", ["prune"]),
        ("UPDATE batches SET state = 'open'", ["I10"]),
        ("UPDATE batches SET sealed = 0", ["I10"]),
        ("UPDATE batches SET expected = 1", ["I10"]),
        ("UPDATE batches SET counts = json_set(counts, '$.done', 1)", ["I10"]),
        (
            "UPDATE events SET type = 'batch.progress' WHERE type = 'batch.reopened'",
            ["I10", "I8"],
        ),
        (
            "UPDATE events SET at = at + 57001 WHERE type = 'batch.progress' AND n = 2",
            ["I10"],
        ),
        (
            (
                "UPDATE events SET data = json_set(data, '$.done', 9) "
                "WHERE type = 'batch.progress'"
            ),
            ["I10"],
        ),
        ("UPDATE jobs SET tags = NULL WHERE tags LIKE 'batch:%'", ["I10"]),
        (
            (
                "UPDATE jobs SET input = json_set(input, '$.generation', 0) "
                "WHERE queue = 'backburner.deliveries'"
            ),
            ["I8"],
        ),
        ("UPDATE jobs SET callback = NULL", ["I8", "I11"]),
        ("UPDATE jobs SET tags = NULL WHERE queue = 'after'", ["I11"]),
        (
            (
                "UPDATE jobs SET input = json_set(input, '$.job.generation', 1) "
                "WHERE queue = 'after'"
            ),
            ["I11"],
        ),
        (
            (
                "UPDATE jobs SET input = json_set(input, '$.job.output', 2) "
                "WHERE queue = 'after'"
            ),
            ["I11"],
        ),
    ],
)
def test_rows_that_tell_of_a_broken_promise_are_found(
    path: Path, statement: str, expected: list[str]
) -> None:
    tamper(path, statement)

    assert sorted(expected) == broken(path)


def test_a_delivery_that_is_missing_or_doubled_is_found(path: Path) -> None:
    one = "SELECT min(seq) FROM jobs WHERE queue = 'backburner.deliveries'"
    tamper(path, f"UPDATE jobs SET capability = 'greet' WHERE seq = ({one})")  # noqa: S608 - ours

    assert ["I8"] == broken(path)


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (Ledger(acknowledged=["flow_lost"]), ["I1"]),
        (Ledger(acknowledged=["flow_old"], pruned=["flow_old"]), []),
        (Ledger(group_readings=[GroupReading(BATCH, [], False)]), []),
        (Ledger(group_readings=[GroupReading(BATCH, [], True)]), ["readers"]),
        (Ledger(group_readings=[GroupReading(BATCH, [999], False)]), ["readers"]),
        (Ledger(group_readings=[GroupReading("flow_old", [999], True)]), []),
    ],
)
def test_a_ledger_that_knows_better_is_believed(
    path: Path, ledger: Ledger, expected: list[str]
) -> None:
    assert expected == broken(path, ledger)


@pytest.mark.parametrize(
    ("states", "edges", "expected"),
    [
        ("", [], FlowState.SUCCEEDED),
        ("ss", [(0, 1, False)], FlowState.SUCCEEDED),
        ("fc", [(0, 1, False)], FlowState.FAILED),
        ("fs", [(0, 1, True)], FlowState.SUCCEEDED),
        ("fsc", [(0, 1, True), (0, 2, False)], FlowState.FAILED),
        ("cs", [(0, 1, True)], FlowState.SUCCEEDED),
        ("sc", [(0, 1, False)], FlowState.CANCELLED),
        ("cf", [], FlowState.FAILED),
    ],
)
def test_a_flow_comes_to_the_worst_that_somebody_minds(
    states: str, edges: list[tuple[int, int, bool]], expected: FlowState
) -> None:
    named = {"s": JobState.SUCCEEDED, "f": JobState.FAILED, "c": JobState.CANCELLED}
    steps = {number: named[letter] for number, letter in enumerate(states)}

    assert expected is verdict(steps, [Line(*edge) for edge in edges])
