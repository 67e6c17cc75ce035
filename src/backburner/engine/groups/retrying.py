"""
Retries all failed jobs of a flow or batch, page by page.

Each retry is a compare-and-set.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from backburner.domain.errors import BudgetExhausted
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Instant, Job, JobState
from backburner.domain.queues.queue import BULK, Totals
from backburner.ports.store import Store
from backburner.ports.store.jobs import Move
from backburner.ports.store.keys import AuditEntry
from backburner.ports.store.maintenance import JobFilter

PAGE: Final = 500
NONE: Final = Totals()


async def retry_failed(
    store: Store,
    *,
    now: Instant,
    flow: int | None = None,
    batch: int | None = None,
    entries: Sequence[AuditEntry] = (),
) -> int:
    """
    Retry the failed jobs of a flow or batch, the oldest first; return how many.

    `entries` are added to the audit log with the first that is retried.
    """
    where = JobFilter(state=JobState.FAILED, flow=flow, batch=batch)
    before: int | None = None
    moves: list[Move] = []
    while page := await store.jobs(where, before=before, limit=PAGE):
        moves += retry_moves(page, now)
        before = page[-1].seq
    moves.reverse()  # or a step would be refused because of one on the next page
    retried = 0
    for first in range(0, len(moves), PAGE):
        some = moves[first : first + PAGE]
        due = () if retried else entries
        retried += sum(await store.reopen(some, entries=due))
    return retried


def can_be_retried(job: Job) -> bool:
    """Say whether a dead letter can be queued again: a bulk action is asked anew."""
    return job.queue != BULK


async def count_retriable(store: Store, where: JobFilter) -> int:
    """Count the matching dead letters, except failed bulk actions."""
    if where.queue == BULK:
        return 0
    count = await store.count(where)
    # Rarely one has failed: only then the dead letters are read a second time.
    has_failed = where.queue is None and (await store.totals()).get(BULK, NONE).failed
    if has_failed:
        count -= await store.count(replace(where, queue=BULK))
    return count


class Retries(NamedTuple):
    """The result of retrying jobs."""

    retried: int
    """How many were still dead letters and are queued again."""
    over_budget: frozenset[str]
    """The ids of those that a budget refused."""


async def retry_affordable(
    store: Store, jobs: Sequence[Job], *, now: Instant
) -> Retries:
    """Retry jobs in one transaction; if a budget refuses one, in ever smaller ones."""
    if not jobs:
        return Retries(0, frozenset())
    try:
        return Retries(sum(await store.reopen(retry_moves(jobs, now))), frozenset())
    except BudgetExhausted:
        if len(jobs) == 1:
            return Retries(0, frozenset({jobs[0].id}))
    middle = len(jobs) // 2
    first = await retry_affordable(store, jobs[:middle], now=now)
    rest = await retry_affordable(store, jobs[middle:], now=now)
    return Retries(first.retried + rest.retried, first.over_budget | rest.over_budget)


def retry_moves(
    jobs: Sequence[Job], now: Instant, rate: float | None = None
) -> list[Move]:
    """Return the moves that queue dead letters again, at `rate` per second if given."""
    changes = transitions.retry_all(jobs, now=now, rate=rate)
    return [
        Move(job.seq, job.state, job.generation, change, job.consequences)
        for job, change in zip(jobs, changes, strict=True)
    ]
