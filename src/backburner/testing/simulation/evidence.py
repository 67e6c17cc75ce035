"""Checks in addition to the auditor's: a simulation sees the database and the time."""

from collections.abc import Iterator
from typing import Final

from backburner.testing.auditor import Ledger
from backburner.testing.groups import Made
from backburner.testing.records import Breach
from backburner.testing.simulation.disk import Disk
from backburner.testing.simulation.world import LEASE, World

# Not every input is JSON: a step's input may be the output of a prerequisite.
EFFECTIVE: Final = """
SELECT id FROM jobs WHERE CASE WHEN json_valid(input) THEN input ->> 'effect' END
"""
STREAMED: Final = """
SELECT id FROM jobs WHERE CASE WHEN json_valid(input) THEN input ->> 'text' <> '' END
"""
PRUNED_ALIVE: Final = """
SELECT job FROM pruned
 WHERE state NOT IN ('succeeded', 'failed', 'cancelled', 'finished')
"""
CANCELLED_FOR_ANOTHER: Final = """
SELECT id FROM jobs WHERE error_code = 'CANCELLED'
   AND error ->> 'message' LIKE 'asked: %' AND error ->> 'message' <> 'asked: ' || id
"""
NOTED_ONLY: Final = """
SELECT job FROM notes
 WHERE job NOT IN (SELECT id FROM jobs UNION SELECT id FROM flows
                   UNION SELECT id FROM batches UNION SELECT job FROM pruned)
"""
NOT_NOTED_ONCE: Final = """
SELECT id FROM (SELECT id, tags FROM jobs UNION SELECT id, tags FROM flows
                UNION SELECT id, tags FROM batches)
 WHERE tags = 'noted' AND (SELECT count(*) FROM notes WHERE job = id) <> 1
"""
NOTED_OR_PUBLISHED: Final = """
SELECT job FROM (
  SELECT job, 1 AS n FROM notes
   UNION ALL SELECT data ->> 'id', -1 FROM events WHERE topic = 'notes')
 GROUP BY job HAVING sum(n) <> 0
"""
UNFENCED: Final = "SELECT job FROM writes WHERE NOT is_held"
GONE: Final = "SELECT worker, silent FROM gone"
MISCOUNTED: Final = """
SELECT id FROM jobs AS waiting
 WHERE state = 'blocked' AND (open = 0 OR open <> (
   SELECT count(*) FROM edges JOIN jobs AS p ON p.seq = edges.prerequisite
    WHERE edges.dependent = waiting.seq
      AND p.state NOT IN ('succeeded', 'failed', 'cancelled')))
"""
MISJUDGED: Final = """
SELECT id FROM (
  SELECT id, state, active, steps, (
    SELECT count(*) FROM jobs WHERE flow = flows.seq
       AND jobs.state IN ('scheduled', 'waiting', 'queued', 'running')) AS n, (
    SELECT count(*) FROM jobs WHERE flow = flows.seq) AS whole
    FROM flows)
 WHERE active <> n OR (state = 'running') <> (n > 0) OR steps <> whole
"""


UNPUBLISHED: Final = """
SELECT job FROM effects WHERE 1 <> (
  SELECT count(*) FROM events WHERE topic = 'effects'
     AND data ->> 'job' = effects.job AND data ->> 'generation' = effects.generation)
"""
UNFOUNDED: Final = """
SELECT data ->> 'job' FROM events WHERE topic = 'effects' AND NOT EXISTS (
  SELECT 1 FROM effects
   WHERE job = data ->> 'job' AND generation = data ->> 'generation')
"""
OVERSPENT: Final = """
SELECT scope || ' ' || value FROM accounts
 WHERE settled - overdraft + held > ceiling OR held < 0 OR held <> (
   SELECT coalesce(sum(amount), 0) FROM holds
    WHERE account = accounts.seq AND is_open)
"""


MISTOTALLED: Final = """
SELECT queue || ', ' || state FROM (
  SELECT queue, state, n FROM ended UNION ALL SELECT queue, state, -n FROM totals)
 GROUP BY queue, state HAVING sum(n) <> 0
"""


def complete(ledger: Ledger, disk: Disk) -> None:
    """Add the simulation's own records to a ledger."""
    ledger.effects = disk.rows("SELECT job, generation FROM effects")
    ledger.effective = [job for (job,) in disk.rows(EFFECTIVE)]
    ledger.streamed = [job for (job,) in disk.rows(STREAMED)]
    ledger.pruned = [job for (job,) in disk.rows("SELECT job FROM pruned")]
    ledger.made = [Made(*row) for row in disk.rows("SELECT * FROM made")]


def standing_breaches(world: World) -> Iterator[Breach]:
    """Yield violations of what must hold after every commit."""
    for (job,) in world.disk.rows(MISCOUNTED):
        yield Breach("I9", job, "waits for another number than it counts")
    for (flow,) in world.disk.rows(MISJUDGED):
        yield Breach("I9", flow, "is not over with its last step")
    for (account,) in world.disk.rows(OVERSPENT):
        yield Breach("budget", account, "is over its limit, or holds what nobody does")
    for (ends,) in world.disk.rows(MISTOTALLED):
        yield Breach("totals", ends, "ended another number of times than is counted")


def own_breaches(world: World) -> Iterator[Breach]:
    """Yield violations that only the simulation can detect."""
    checks = {
        PRUNED_ALIVE: Breach("prune", "", "was pruned before its end"),
        CANCELLED_FOR_ANOTHER: Breach("cancel", "", "was cancelled for another"),
        UNFENCED: Breach("fence", "", "was written by a worker that had lost it"),
        NOTED_ONLY: Breach("transact", "", "is noted and is not there"),
        NOTED_OR_PUBLISHED: Breach("events", "", "has a note or its event, not both"),
        UNPUBLISHED: Breach("events", "", "has an effect and not its one event"),
        UNFOUNDED: Breach("events", "", "has an event of what was not committed"),
        NOT_NOTED_ONCE: Breach("transact", "", "is there and is not noted once"),
    }
    for query, breach in checks.items():
        for (job,) in world.disk.rows(query):
            yield breach._replace(job=job)
    yield from world.application.breaches(world.disk)
    yield from world.patience.breaches()
    stopped = [worker.id for worker in world.stopped]
    for worker, silent in world.disk.rows(GONE):
        if silent < LEASE * 1000 and worker not in stopped:
            told = f"was declared dead after {silent} ms of silence"
            yield Breach("lease", worker, told)
