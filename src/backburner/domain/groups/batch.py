"""Batches: any number of jobs and flows that are counted and end together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from backburner.domain.groups.flow import FlowState, NewFlow
from backburner.domain.jobs.job import (
    FINAL,
    Instant,
    JobState,
    NewJob,
    Owner,
    Submitted,
)

PROGRESS_MS: Final = 1000
"""How much time lies at least between two tellings of a batch's progress."""


class BatchState(StrEnum):
    """What has become of a batch."""

    OPEN = "open"
    FINISHED = "finished"


class Members(NamedTuple):
    """What is put into a batch: each job and each flow counts as one."""

    jobs: Sequence[NewJob] = ()
    flows: Sequence[NewFlow] = ()

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.jobs) + len(self.flows)


def replaced(members: Members, answers: Sequence[Submitted]) -> Members:
    """
    Return the members that are not there: others, submitted before, stand for them.

    Answers are jobs, then flows. One that is replayed under its own id was stored by a
    commit whose answer got lost.
    """
    count = len(members.jobs)
    jobs = zip(members.jobs, answers[:count], strict=True)
    flows = zip(members.flows, answers[count:], strict=True)
    return Members(
        [job for job, answer in jobs if answer.id != job.id],
        [flow for flow, answer in flows if answer.id != flow.id],
    )


@dataclass(slots=True)
class NewBatch:
    """A batch as it is asked for."""

    id: str
    owner: Owner
    created_at: Instant
    expected: int | None = None
    """How many members it will have; it takes no more and ends with no fewer."""
    sealed: bool = True
    """Whether no more will come."""
    completion: str | None = None
    """The job to make at its end, as JSON: its capability and, if it has, its input."""
    callback: str | None = None
    tags: Sequence[str] = ()
    request_id: str | None = None
    traceparent: str | None = None
    idempotency_key: str | None = None
    body_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The durable record, as it is read back."""

    seq: int
    id: str
    owner: Owner
    state: BatchState
    generation: int
    events: int
    sealed: bool
    created_at: Instant
    expected: int | None = None
    finished_at: Instant | None = None
    completion: str | None = None
    counts: str | None = None
    """The final counts, as JSON."""
    told: int = 0
    callback: str | None = None
    tags: tuple[str, ...] = field(default=())
    request_id: str | None = None
    traceparent: str | None = None
    body_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """A batch's members by state; the steps of its flows by state as well."""

    members: Mapping[str, int]
    jobs: Mapping[str, int]
    """All jobs, those that are steps of the batch's flows included."""

    @property
    def total(self) -> int:
        """How many members there are."""
        return sum(self.members.values())

    @property
    def done(self) -> int:
        """How many of them have ended."""
        ends = {*map(str, FINAL), *(str(s) for s in FlowState if s.is_final)}
        return sum(n for state, n in self.members.items() if state in ends)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to do."""
        live = [n for state, n in self.jobs.items() if JobState(state) not in FINAL]
        return self.done == self.total and not any(live)

    def told(self) -> dict[str, Any]:
        """Write them as they are shown."""
        return {**self.progress(), "jobs": dict(self.jobs)}

    def progress(self) -> dict[str, Any]:
        """Write what is told on the way: members only."""
        return {
            "total": self.total,
            "done": self.done,
            "members": dict(self.members),
        }
