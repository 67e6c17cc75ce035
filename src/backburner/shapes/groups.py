"""Flows and batches."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from backburner.domain.groups.batch import BatchState
from backburner.domain.groups.flow import FlowState
from backburner.domain.jobs.job import JobState
from backburner.shapes import Time
from backburner.shapes.jobs import JobError, Progress

CountsByState = Annotated[dict[str, int], dict[JobState, int]]


class Need(TypedDict):
    """What a step waits for."""

    step: str
    otherwise: Literal["cancel", "continue"]


class Step(TypedDict):
    """A step of a flow. It is a job: `GET /v1/jobs/{id}` has all of it."""

    id: str
    name: str
    capability: str
    state: Annotated[str, JobState]
    needs: list[Need]
    attempt: int
    max_attempts: int
    progress: Annotated[Progress, dict[str, Any]] | None
    error: JobError | None
    started_at: Time | None
    finished_at: Time | None


class GroupLinks(TypedDict):
    """Where to go from a flow or batch."""

    self: str
    jobs: str
    events: str
    cancel: str
    retry: str


class Flow(TypedDict):
    """A flow."""

    id: str
    user: str
    """Whose flow it is."""
    state: Annotated[str, FlowState]
    generation: int
    """How often a retry opened it again."""
    tags: list[str]
    created_at: Time
    deadline: Time | None
    finished_at: Time | None
    request_id: str | None
    batch_id: str | None
    size: int
    """How many steps it has."""
    links: GroupLinks
    counts: NotRequired[CountsByState]
    """Steps by state. Only when one flow is asked for."""
    steps: NotRequired[list[Step]]
    """As `counts`: each after what it needs."""


class Counts(TypedDict):
    """What has become of a batch's members."""

    total: int
    done: int
    members: dict[str, int]
    """Jobs and flows by state."""
    jobs: CountsByState
    """All jobs, steps included, by state."""


class Added(TypedDict):
    """The ids of what was put into a batch, in the order of the request."""

    jobs: list[str]
    flows: list[str]


class Batch(TypedDict):
    """A batch."""

    id: str
    user: str
    """Whose batch it is."""
    state: Annotated[str, BatchState]
    generation: int
    """How often a retry opened it again."""
    expected: int | None
    sealed: bool
    """No more will come."""
    done: int
    """How many members have ended; in lists a second old."""
    tags: list[str]
    created_at: Time
    finished_at: Time | None
    request_id: str | None
    links: GroupLinks
    counts: Counts | None
    """In lists only of those that are finished."""
    added: NotRequired[Added]
    """When members were put into it, and not said before."""
    retried: NotRequired[int]
    """How many jobs a retry queued again."""
