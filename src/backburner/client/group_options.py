"""Typed options for requests about flows and batches."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict

Otherwise = Literal["cancel", "continue"]


class Need(TypedDict):
    """A prerequisite of a step, and what happens to the step if it fails."""

    step: str
    otherwise: NotRequired[Otherwise]


class NewStep(TypedDict):
    """A step to submit. Without `input`, it gets the outputs of its prerequisites."""

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
    metadata: NotRequired[Mapping[str, str]]
    tokens: NotRequired[int]
    share: NotRequired[str]
    callback: NotRequired[Mapping[str, str]]
    completion: NotRequired[Mapping[str, Any]]


class NewFlow(TypedDict):
    """A flow to add to a batch."""

    steps: list[NewStep]
    deadline: NotRequired[datetime | str]
    tags: NotRequired[list[str]]
    callback: NotRequired[Mapping[str, str]]


class NewJob(TypedDict):
    """A job to add to a batch."""

    capability: str
    input: Any
    queue: NotRequired[str]
    priority: NotRequired[int]
    run_at: NotRequired[datetime | str]
    start_by: NotRequired[datetime | str]
    deadline: NotRequired[datetime | str]
    max_attempts: NotRequired[int]
    tags: NotRequired[list[str]]
    metadata: NotRequired[Mapping[str, str]]
    tokens: NotRequired[int]
    share: NotRequired[str]
    callback: NotRequired[Mapping[str, str]]
    completion: NotRequired[Mapping[str, Any]]


class Completion(TypedDict):
    """The job to submit after a batch. Without `input`, it gets the counts."""

    capability: str
    input: NotRequired[Any]


class FlowOptions(TypedDict, total=False):
    """Options of a flow; the server decides what is `None` or left out."""

    deadline: datetime | str | None
    tags: list[str] | None
    callback: Mapping[str, str] | None


class BatchOptions(TypedDict, total=False):
    """Options of a batch; the server decides what is `None` or left out."""

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
