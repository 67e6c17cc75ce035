"""Request and response models of flows and batches."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from backburner.domain.groups.batch import BatchState
from backburner.domain.groups.flow import MAX_EDGES, MAX_NAME, MAX_STEPS, FlowState
from backburner.domain.jobs.job import JobState
from backburner.engine.groups.planning import MAX_EXPECTED
from backburner.http.schemas.jobs import (
    MAX_LIMIT,
    Asked,
    CallbackRequest,
    Completion,
    JobRequest,
    Metadata,
    Name,
    Tag,
    Tags,
    Time,
    Tokens,
)
from backburner.http.schemas.models import model_of, page_of
from backburner.shapes import groups

MAX_MEMBERS: Final = 10_000
"""The maximum number of jobs and flows that one call adds to a batch."""
MAX_JOBS: Final = 100_000
"""The maximum number of steps of those flows."""

StepName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]
Callback = Annotated[
    CallbackRequest | None, Field(description="Receiver of a webhook when it ends.")
]


class NeedRequest(Asked):
    """A prerequisite of a step."""

    step: StepName
    otherwise: Literal["cancel", "continue"] = Field(
        "cancel",
        description="If it does not succeed: cancel the dependent step, or run it.",
    )


def _read_need(value: Any) -> Any:
    return {"step": value} if isinstance(value, str) else value


Need = Annotated[
    NeedRequest,
    BeforeValidator(_read_need, json_schema_input_type=StepName | NeedRequest),
]


class StepRequest(Asked):
    """A job of a flow, and its prerequisites."""

    name: StepName = Field(description="Name, unique within the flow.")
    capability: Name
    input: Any = Field(
        None,
        description="Default: the output of the step that it needs or, of several, "
        "an object of their outputs by name.",
    )
    needs: list[Need] = Field([], max_length=MAX_STEPS)
    queue: Name | None = None
    priority: int = Field(0, ge=0, le=9)
    run_at: Time | None = None
    start_by: Time | None = None
    max_attempts: int | None = Field(None, ge=1, le=100)
    tags: Tags = Field([])
    metadata: Metadata = None
    tokens: Tokens | None = None
    share: Tag | None = None
    callback: Callback = None
    completion: Completion = None


def _few_needs(steps: Any) -> Any:
    """Count before parsing: millions of needs fit into a body."""
    if isinstance(steps, list) and sum(map(_needs_in, steps)) > MAX_EDGES:
        raise ValueError(f"a flow can have at most {MAX_EDGES:,} dependencies")
    return steps


def _few_steps(flows: Any) -> Any:
    """Count the steps of all flows of a call, likewise before parsing."""
    if not isinstance(flows, list):
        return flows
    asked = [flow["steps"] for flow in flows if _has_list(flow, "steps")]
    if sum(map(len, asked)) > MAX_JOBS:
        raise ValueError(f"the flows may have at most {MAX_JOBS:,} steps in total")
    _few_needs([step for steps in asked for step in steps])
    return flows


def _needs_in(step: Any) -> int:
    return len(step["needs"]) if _has_list(step, "needs") else 0


def _has_list(value: Any, name: str) -> bool:
    return isinstance(value, dict) and isinstance(value.get(name), list)


class FlowRequest(Asked):
    """Steps that depend on each other, in any order, without cycles."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "steps": [
                        {
                            "name": "wait",
                            "capability": "demo.sleep",
                            "input": {"seconds": 1},
                        },
                        {"name": "tell", "capability": "demo.echo", "needs": ["wait"]},
                    ]
                },
                {
                    "steps": [
                        {
                            "name": "try",
                            "capability": "demo.fail",
                            "input": {"error": "permanent"},
                        },
                        {
                            "name": "go on",
                            "capability": "demo.echo",
                            "input": {"whatever": "it came to"},
                            "needs": [{"step": "try", "otherwise": "continue"}],
                        },
                    ],
                    "tags": ["nightly"],
                },
            ]
        }
    )

    steps: Annotated[list[StepRequest], BeforeValidator(_few_needs)] = Field(
        min_length=1, max_length=MAX_STEPS
    )
    deadline: Time | None = Field(
        None, description="Fails unless finished by this time."
    )
    tags: Tags = Field([])
    callback: Callback = None


class CompletionRequest(Asked):
    """The job to submit after a batch."""

    capability: Name
    input: Any = Field(
        None,
        description="Default: the batch's id, generation and counts.",
    )


class BatchRequest(Asked):
    """Jobs and flows that are counted together and have one end."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "jobs": [
                        {"capability": "demo.echo", "input": {"page": 1}},
                        {"capability": "demo.echo", "input": {"page": 2}},
                    ],
                    "completion": {"capability": "demo.echo"},
                },
                {"expected": 1000},
            ]
        }
    )

    jobs: list[JobRequest] = Field([], max_length=MAX_MEMBERS)
    flows: Annotated[list[FlowRequest], BeforeValidator(_few_steps)] = Field(
        [], max_length=MAX_MEMBERS
    )
    expected: int | None = Field(
        None,
        ge=0,
        le=MAX_EXPECTED,
        description="Number of members. The batch accepts no more, and finishes with "
        "no fewer. Default: the members in this request.",
    )
    sealed: bool | None = Field(
        None, description="`false`: members can be added until the batch is sealed."
    )
    completion: CompletionRequest | None = None
    tags: Tags = Field([])
    callback: Callback = None


class MembersRequest(Asked):
    """Members to add to a batch."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "jobs": [{"capability": "demo.echo", "input": {"page": 3}}],
                    "seal": True,
                }
            ]
        }
    )

    jobs: list[JobRequest] = Field([], max_length=MAX_MEMBERS)
    flows: Annotated[list[FlowRequest], BeforeValidator(_few_steps)] = Field(
        [], max_length=MAX_MEMBERS
    )
    seal: bool = Field(False, description="Accept no more members after these.")


class FlowQuery(BaseModel):
    """Selects flows to list."""

    model_config = ConfigDict(extra="forbid")

    state: FlowState | None = None
    tag: Tag | None = None
    batch: Name | None = Field(None, description="Flows of this batch.")
    cursor: str | None = Field(None, description="`next_cursor` of the previous page.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class StepQuery(BaseModel):
    """Selects steps of a flow to list."""

    model_config = ConfigDict(extra="forbid")

    state: JobState | None = None
    node: int | None = Field(
        None,
        ge=0,
        le=MAX_STEPS,
        description="Steps of this node of the flow's graph, by its index.",
    )
    cursor: str | None = Field(None, description="`next_cursor` of the previous page.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class BatchQuery(BaseModel):
    """Selects batches to list."""

    model_config = ConfigDict(extra="forbid")

    state: BatchState | None = None
    tag: Tag | None = None
    cursor: str | None = Field(None, description="`next_cursor` of the previous page.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


FlowView = model_of(groups.Flow)
FlowPage = page_of(groups.Flow, "FlowPage", "Flows, newest first.")
FlowGraphView = model_of(groups.FlowGraph)
StepPage = page_of(groups.Step, "StepPage", "Steps, each after its prerequisites.")
BatchView = model_of(groups.Batch)
BatchPage = page_of(groups.Batch, "BatchPage", "Batches, newest first.")
