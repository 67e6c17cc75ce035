"""What a simulation can check beyond the auditor: it sees the disk and the time."""

from collections.abc import Iterator
from typing import Final

from backburner.testing.auditor import Breach, Ledger
from backburner.testing.simulation.disk import Disk
from backburner.testing.simulation.world import LEASE, World

EFFECTIVE: Final = "SELECT id FROM jobs WHERE input ->> 'effect'"
PRUNED_ALIVE: Final = """
SELECT job FROM pruned WHERE state NOT IN ('succeeded', 'failed', 'cancelled')
"""
CANCELLED_FOR_ANOTHER: Final = """
SELECT id FROM jobs WHERE error_code = 'CANCELLED'
   AND error ->> 'message' LIKE 'asked: %' AND error ->> 'message' <> 'asked: ' || id
"""
NOTED_ONLY: Final = """
SELECT job FROM notes
 WHERE job NOT IN (SELECT id FROM jobs UNION SELECT job FROM pruned)
"""
NOT_NOTED_ONCE: Final = """
SELECT id FROM jobs
 WHERE tags = 'noted' AND (SELECT count(*) FROM notes WHERE job = id) <> 1
"""
GONE: Final = "SELECT worker, silent FROM gone"


def complete(ledger: Ledger, disk: Disk) -> None:
    """Add to a ledger what lies on the disk beside the engine's tables."""
    ledger.effects = disk.rows("SELECT job, generation FROM effects")
    ledger.effective = [job for (job,) in disk.rows(EFFECTIVE)]
    ledger.pruned = [job for (job,) in disk.rows("SELECT job FROM pruned")]


def own_breaches(world: World) -> Iterator[Breach]:
    """Yield what only one who sees everything can know."""
    checks = {
        PRUNED_ALIVE: Breach("prune", "", "was pruned before its end"),
        CANCELLED_FOR_ANOTHER: Breach("cancel", "", "was cancelled for another"),
        NOTED_ONLY: Breach("transact", "", "is noted and is not there"),
        NOT_NOTED_ONCE: Breach("transact", "", "is there and is not noted once"),
    }
    for query, breach in checks.items():
        for (job,) in world.disk.rows(query):
            yield breach._replace(job=job)
    stopped = [worker.id for worker in world.stopped]
    for worker, silent in world.disk.rows(GONE):
        if silent < LEASE * 1000 and worker not in stopped:
            told = f"was declared dead after {silent} ms of silence"
            yield Breach("lease", worker, told)
