"""
What is told of a job, and how its attempts are read out of that.

Events are append-only and numbered from 1 within a job, without gaps, in the
transaction that makes the change. The history of attempts is a fold over them:
it is not stored a second time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from backburner.domain.job import Instant, JobState

QUEUED: Final = "job.queued"
SCHEDULED: Final = "job.scheduled"
STARTED: Final = "job.started"
PROGRESS: Final = "job.progress"
THROTTLED: Final = "job.throttled"
STALLED: Final = "job.stalled"
RETRYING: Final = "job.retrying"
SUCCEEDED: Final = "job.succeeded"
FAILED: Final = "job.failed"
CANCELLED: Final = "job.cancelled"

LEADS_TO: Final[Mapping[str, JobState]] = {
    QUEUED: JobState.QUEUED,
    SCHEDULED: JobState.SCHEDULED,
    STARTED: JobState.RUNNING,
    THROTTLED: JobState.SCHEDULED,
    STALLED: JobState.QUEUED,
    RETRYING: JobState.SCHEDULED,
    SUCCEEDED: JobState.SUCCEEDED,
    FAILED: JobState.FAILED,
    CANCELLED: JobState.CANCELLED,
}
"""The state a job is in after an event; `job.progress` changes none."""


class Event(NamedTuple):
    """One line of a job's history."""

    seq: int
    """Its place among the events of all jobs: the cursor of the overall stream."""
    job_id: str
    n: int
    """Its place among the events of its job, from 1 and without gaps."""
    type: str
    at: Instant
    data: Mapping[str, Any]

    @property
    def is_final(self) -> bool:
        """Whether the job ended with it."""
        return LEADS_TO.get(self.type, JobState.RUNNING).is_final


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job by a worker."""

    generation: int
    number: int
    worker: str
    started_at: Instant
    finished_at: Instant | None = None
    outcome: str | None = None
    error: Mapping[str, Any] | None = None


def attempts(events: Iterable[Event]) -> list[Attempt]:
    """Fold a job's events, in order, into the history of its attempts."""
    history: list[Attempt] = []
    for event in events:
        if event.type == STARTED:
            history.append(
                Attempt(
                    generation=event.data["generation"],
                    number=event.data["attempt"],
                    worker=event.data["worker"],
                    started_at=event.at,
                )
            )
        elif event.type in LEADS_TO and history and history[-1].finished_at is None:
            history[-1] = replace(
                history[-1],
                finished_at=event.at,
                outcome=event.data.get("outcome", event.type.removeprefix("job.")),
                error=event.data.get("error"),
            )
    return history
