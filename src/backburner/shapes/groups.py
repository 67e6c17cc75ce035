"""Flows and batches."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from backburner.domain.groups.batch import BatchState
from backburner.domain.groups.flow import FlowState
from backburner.domain.jobs.job import JobState
from backburner.shapes import Time
from backburner.shapes.jobs import JobError, Progress

CountsByState = Annotated[dict[str, int], dict[JobState, int]]


class Need(TypedDict):
    """A prerequisite of a step."""

    step: str
    otherwise: Literal["cancel", "continue"]


class Step(TypedDict):
    """A step of a flow. It is a job: `GET /v1/jobs/{id}` returns all of its fields."""

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
    """Related paths of a flow or batch."""

    self: str
    jobs: str
    events: str
    cancel: str
    retry: str


class Flow(TypedDict):
    """A flow."""

    id: str
    user: str
    """User that the flow belongs to."""
    state: Annotated[str, FlowState]
    generation: int
    """How often it was reopened by a retry."""
    tags: list[str]
    created_at: Time
    deadline: Time | None
    finished_at: Time | None
    request_id: str | None
    batch_id: str | None
    size: int
    """Number of its steps."""
    links: GroupLinks
    counts: NotRequired[CountsByState]
    """Steps by state; only if a single flow is requested."""
    steps: NotRequired[list[Step]]
    """Only if a single flow is requested: each step after its prerequisites."""


class GraphNode(TypedDict):
    """Steps of a flow that are shown together."""

    layer: int
    """How many nodes are before it on the longest path."""
    size: int
    """Number of its steps."""
    capability: str | None
    """Null if its steps have several."""
    counts: CountsByState
    step: Step
    """The first of its steps."""


class GraphLink(TypedDict):
    """Steps of one node need steps of another one; nodes by their index."""

    source: int
    target: int
    otherwise: Literal["cancel", "continue"]
    """`cancel` if any of these steps is cancelled without its prerequisite."""


class FlowGraph(TypedDict):
    """A flow, and its steps in few nodes."""

    flow: Flow
    """Without `steps`."""
    nodes: list[GraphNode]
    links: list[GraphLink]


class Counts(TypedDict):
    """The members of a batch by state."""

    total: int
    done: int
    members: dict[str, int]
    """Jobs and flows by state."""
    jobs: CountsByState
    """All jobs by state, including steps."""


class Added(TypedDict):
    """The ids of members that were added to a batch, in the order of the request."""

    jobs: list[str]
    flows: list[str]


class Batch(TypedDict):
    """A batch."""

    id: str
    user: str
    """User that the batch belongs to."""
    state: Annotated[str, BatchState]
    generation: int
    """How often it was reopened by a retry."""
    expected: int | None
    sealed: bool
    """Whether no more members can be added."""
    done: int
    """Number of members that have ended; in lists up to a second old."""
    tags: list[str]
    created_at: Time
    finished_at: Time | None
    request_id: str | None
    links: GroupLinks
    counts: Counts | None
    """In lists only for finished batches."""
    added: NotRequired[Added]
    """Only in the response that added members."""
    retried: NotRequired[int]
    """Number of jobs that were queued again by a retry."""
