"""
Events of jobs, flows, batches, queues and lanes; attempts are computed from them.

Events are append-only and numbered from 1 within their subject, without gaps, in the
transaction that makes the change. A job's history of attempts is computed from its
events and not stored a second time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from backburner.domain.jobs.job import Instant, JobState

BLOCKED: Final = "job.blocked"
QUEUED: Final = "job.queued"
SCHEDULED: Final = "job.scheduled"
WAITING: Final = "job.waiting"
SIGNALLED: Final = "job.signalled"
STARTED: Final = "job.started"
PROGRESS: Final = "job.progress"
DELTA: Final = "job.output.delta"
STEP_CHANGED: Final = "job.step.changed"
FORKED: Final = "job.forked"
CHANGED: Final = "job.changed"
THROTTLED: Final = "job.throttled"
STALLED: Final = "job.stalled"
RETRYING: Final = "job.retrying"
SUCCEEDED: Final = "job.succeeded"
FAILED: Final = "job.failed"
CANCELLED: Final = "job.cancelled"

FLOW_STARTED: Final = "flow.started"
FLOW_REOPENED: Final = "flow.reopened"
FLOW_ENDS: Final = frozenset({"flow.succeeded", "flow.failed", "flow.cancelled"})
BATCH_OPENED: Final = "batch.opened"
BATCH_PROGRESS: Final = "batch.progress"
BATCH_FINISHED: Final = "batch.finished"
BATCH_REOPENED: Final = "batch.reopened"
QUEUE_THROTTLED: Final = "queue.throttled"
LANE_THROTTLED: Final = "lane.throttled"

RESET: Final = "reset"
"""Tells a reader of a topic that events after its cursor may have been deleted."""

EVERYBODY: Final = ""
"""The user of an application's event that is visible to its whole tenant."""

LEADS_TO: Final[Mapping[str, JobState]] = {
    BLOCKED: JobState.BLOCKED,
    QUEUED: JobState.QUEUED,
    SCHEDULED: JobState.SCHEDULED,
    WAITING: JobState.WAITING,
    SIGNALLED: JobState.QUEUED,
    STARTED: JobState.RUNNING,
    THROTTLED: JobState.SCHEDULED,
    STALLED: JobState.QUEUED,
    RETRYING: JobState.SCHEDULED,
    SUCCEEDED: JobState.SUCCEEDED,
    FAILED: JobState.FAILED,
    CANCELLED: JobState.CANCELLED,
}
"""The state that an event puts a job into; progress and text do not change it."""


class Event(NamedTuple):
    """One entry of the event log."""

    seq: int
    """Its position among all events: the cursor of the overall stream."""
    subject: str
    """The id of the job, flow or batch, or the name of the queue or lane."""
    n: int
    """Its number among the events of its subject, from 1 and without gaps."""
    type: str
    at: Instant
    data: Mapping[str, Any]
    trace: str | None = None
    """The stack trace of an error, for authorised readers only."""
    topic: str | None = None
    """The topic of an application's event; its `n` is 0."""

    @property
    def is_final(self) -> bool:
        """Whether the event ends its subject."""
        if self.type in LEADS_TO:
            return LEADS_TO[self.type].is_final
        return self.type in FLOW_ENDS or self.type == BATCH_FINISHED


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One run of a job by a worker."""

    generation: int
    number: int
    worker: str
    started_at: Instant
    finished_at: Instant | None = None
    outcome: str | None = None
    error: Mapping[str, Any] | None = None
    trace: str | None = None
    """The stack trace of an error, for authorised readers only."""


def attempts(events: Iterable[Event]) -> list[AttemptRecord]:
    """Compute the history of a job's attempts from its events, in order."""
    history: list[AttemptRecord] = []
    for event in events:
        if event.type == STARTED:
            history.append(
                AttemptRecord(
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
                trace=event.trace,
            )
    return history
