"""
Retries all failed jobs of a flow or batch, page by page.

Each retry is a compare-and-set.
"""

from collections.abc import Sequence
from typing import Final

from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Instant, Job, JobState
from backburner.ports.store import Store
from backburner.ports.store.jobs import Move
from backburner.ports.store.maintenance import JobFilter

PAGE: Final = 500


async def retry_failed(
    store: Store, *, now: Instant, flow: int | None = None, batch: int | None = None
) -> int:
    """Retry the failed jobs of a flow or batch, the oldest first; return how many."""
    where = JobFilter(state=JobState.FAILED, flow=flow, batch=batch)
    before: int | None = None
    moves: list[Move] = []
    while page := await store.jobs(where, before=before, limit=PAGE):
        moves += retry_moves(page, now)
        before = page[-1].seq
    moves.reverse()  # or a step would be refused because of one on the next page
    pages = [moves[first : first + PAGE] for first in range(0, len(moves), PAGE)]
    return sum([sum(await store.reopen(page)) for page in pages])


def retry_moves(
    jobs: Sequence[Job], now: Instant, rate: float | None = None
) -> list[Move]:
    """Return the moves that queue dead letters again, at `rate` per second if given."""
    changes = transitions.retry_all(jobs, now=now, rate=rate)
    return [
        Move(job.seq, job.state, job.generation, change, job.consequences)
        for job, change in zip(jobs, changes, strict=True)
    ]
