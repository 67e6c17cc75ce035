"""What callers may say of flows and batches, under typed names."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict

Otherwise = Literal["cancel", "continue"]


class Need(TypedDict):
    """A step that another waits for, and what becomes of that one if it fails."""

    step: str
    otherwise: NotRequired[Otherwise]


class NewStep(TypedDict):
    """A step to be done. Without `input` it takes what the steps it needs give."""

    name: str
    capability: str
    input: NotRequired[Any]
    needs: NotRequired[list[str | Need]]
    queue: NotRequired[str]
    priority: NotRequired[int]
    run_at: NotRequired[datetime | str]
    start_by: NotRequired[datetime | str]
    max_attempts: NotRequired[int]
    tags: NotRequired[list[str]]
    tokens: NotRequired[int]
    share: NotRequired[str]
    callback: NotRequired[Mapping[str, str]]
    completion: NotRequired[Mapping[str, Any]]


class NewFlow(TypedDict):
    """A flow to be put into a batch."""

    steps: list[NewStep]
    deadline: NotRequired[datetime | str]
    tags: NotRequired[list[str]]
    callback: NotRequired[Mapping[str, str]]


class NewJob(TypedDict):
    """A job to be put into a batch."""

    capability: str
    input: Any
    queue: NotRequired[str]
    priority: NotRequired[int]
    run_at: NotRequired[datetime | str]
    start_by: NotRequired[datetime | str]
    deadline: NotRequired[datetime | str]
    max_attempts: NotRequired[int]
    tags: NotRequired[list[str]]
    tokens: NotRequired[int]
    share: NotRequired[str]
    callback: NotRequired[Mapping[str, str]]
    completion: NotRequired[Mapping[str, Any]]


class Completion(TypedDict):
    """The job that follows a batch. Without `input` it is told the counts."""

    capability: str
    input: NotRequired[Any]


class FlowOptions(TypedDict, total=False):
    """How a flow is to be kept; what is `None` or left out is the server's choice."""

    deadline: datetime | str | None
    tags: list[str] | None
    callback: Mapping[str, str] | None


class BatchOptions(TypedDict, total=False):
    """How a batch is to be kept; what is `None` or left out is the server's choice."""

    expected: int | None
    sealed: bool | None
    completion: Completion | None
    tags: list[str] | None
    callback: Mapping[str, str] | None


class FlowsQuery(TypedDict, total=False):
    """Which flows to list; `limit` is the size of a page."""

    state: str | None
    tag: str | None
    batch: str | None
    limit: int | None


class BatchesQuery(TypedDict, total=False):
    """Which batches to list; `limit` is the size of a page."""

    state: str | None
    tag: str | None
    limit: int | None
