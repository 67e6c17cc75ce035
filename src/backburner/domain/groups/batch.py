"""Batches: any number of jobs and flows that are counted and end together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from backburner.domain.groups.flow import FlowState, NewFlow
from backburner.domain.groups.group import GroupRecord, NewGroup
from backburner.domain.jobs.job import FINAL, JobState, NewJob, Submitted

PROGRESS_MS: Final = 1000
"""The minimum time between two progress events of a batch."""


class BatchState(StrEnum):
    """The state of a batch."""

    OPEN = "open"
    FINISHED = "finished"


class Members(NamedTuple):
    """What is added to a batch: each job and each flow counts as one member."""

    jobs: Sequence[NewJob] = ()
    flows: Sequence[NewFlow] = ()

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.jobs) + len(self.flows)


def replaced(members: Members, answers: Sequence[Submitted]) -> Members:
    """
    Return the members that were not stored because earlier submissions replace them.

    `answers` are those of the jobs, then of the flows. A member that is replayed under
    its own id was stored by a commit whose response was lost.
    """
    count = len(members.jobs)
    jobs = zip(members.jobs, answers[:count], strict=True)
    flows = zip(members.flows, answers[count:], strict=True)
    return Members(
        [job for job, answer in jobs if answer.id != job.id],
        [flow for flow, answer in flows if answer.id != flow.id],
    )


@dataclass(slots=True, kw_only=True)
class NewBatch(NewGroup):
    """A validated batch, ready to be stored."""

    expected: int | None = None
    """The number of members. The batch accepts no more and does not end with fewer."""
    sealed: bool = True
    """Whether no more members can be added."""
    completion: str | None = None
    """The job to submit at its end, as JSON: its capability and optional input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(GroupRecord):
    """A stored batch."""

    state: BatchState
    sealed: bool
    expected: int | None = None
    completion: str | None = None
    counts: str | None = None
    """The final counts, as JSON."""
    told: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of members by state, and of all jobs by state."""

    members: Mapping[str, int]
    jobs: Mapping[str, int]
    """All jobs, including the steps of the batch's flows."""

    @property
    def total(self) -> int:
        """The number of members."""
        return sum(self.members.values())

    @property
    def done(self) -> int:
        """The number of members that have ended."""
        ends = {*map(str, FINAL), *(str(s) for s in FlowState if s.is_final)}
        return sum(n for state, n in self.members.items() if state in ends)

    @property
    def is_over(self) -> bool:
        """Whether all members and jobs have ended."""
        live = [n for state, n in self.jobs.items() if JobState(state) not in FINAL]
        return self.done == self.total and not any(live)

    def told(self) -> dict[str, Any]:
        """Return the counts as they are shown to users."""
        return {**self.progress(), "jobs": dict(self.jobs)}

    def progress(self) -> dict[str, Any]:
        """Return the counts of members, as progress events contain them."""
        return {
            "total": self.total,
            "done": self.done,
            "members": dict(self.members),
        }
