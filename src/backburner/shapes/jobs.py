"""Jobs, and what belongs to one: attempts, events, signals, questions and steps."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from backburner.domain.jobs.job import JobState, WaitReason
from backburner.shapes import Time
from backburner.shapes.usage import Quote, Receipt, Usage


class JobError(TypedDict):
    """Why a job failed, was put back or was cancelled."""

    code: str
    message: str
    retryable: bool
    retry_after: float | None


class Progress(TypedDict):
    """How far a job is."""

    done: float
    total: float
    message: NotRequired[str]


class Attempt(TypedDict):
    """One run of a job."""

    generation: int
    number: int
    worker: str
    started_at: Time
    finished_at: Time | None
    outcome: str | None
    error: dict[str, Any] | None
    trace: NotRequired[str]
    """The stack of what went wrong; with the scope `tenant:read` only."""


class Links(TypedDict):
    """Where to go from a job."""

    self: str
    result: str
    events: str
    cancel: str


class Wait(TypedDict):
    """What the handler of a job waits for."""

    reason: Annotated[str, WaitReason]
    name: NotRequired[str]
    """The signal or question, the lane, or the child job's id."""
    until: NotRequired[Time]
    """When it goes on at the latest; left out: when it is told."""


class Job(TypedDict):
    """A job."""

    id: str
    user: str
    """User that the job belongs to."""
    capability: str
    queue: str
    state: Annotated[str, JobState]
    priority: int
    tags: list[str]
    attempt: int
    max_attempts: int
    generation: int
    """Number of manual retries."""
    crashes: int
    """Number of lost workers."""
    progress: Annotated[Progress, dict[str, Any]] | None
    error: JobError | None
    created_at: Time
    run_at: Time | None
    start_by: Time | None
    deadline: Time | None
    started_at: Time | None
    finished_at: Time | None
    wait: Wait | None
    """What its handler waits for, if it is scheduled or waiting."""
    request_id: str | None
    flow_id: str | None
    """The flow that it is a step of."""
    step: str | None
    """Its name within that flow."""
    batch_id: str | None
    """The batch that it is in."""
    forked_from: NotRequired[str | None]
    """The job that it is a fork of."""
    links: Links
    input: NotRequired[Any]
    """Only if a single job is requested."""
    input_from: NotRequired[Literal["needs"]]
    """The input is the output of its prerequisites."""
    output: NotRequired[Any]
    """As `input`, if the job has succeeded."""
    attempts: NotRequired[list[Attempt]]
    """As `input`: the history."""
    usage: NotRequired[Usage]
    """If it used any model."""
    receipt: NotRequired[Receipt]
    """In answer to a cancel."""


class Signal(TypedDict):
    """A signal that is stored."""

    job_id: str
    name: str


class Question(TypedDict):
    """A question that a job asks people."""

    job_id: str
    name: str
    user: str
    """Whose job it is."""
    capability: str
    question: str
    choices: list[str] | None
    """The answers that are taken, if set."""
    schema: dict[str, Any] | None
    """The JSON Schema of an answer, if it has one."""
    error: str | None
    """What was wrong with the answer before, if there was one."""
    default: Any
    """What the job goes on with if nobody answers in time …"""
    has_default: bool
    """… if it has such a default."""
    asked_at: Time
    until: Time | None
    """When it is given up, if ever."""
    links: dict[str, str]


class Event(TypedDict):
    """An event of a job, flow, batch, queue or lane, or one of an application."""

    seq: int
    """Its place among all events."""
    job_id: NotRequired[str]
    """What it is about: one of these six."""
    flow_id: NotRequired[str]
    batch_id: NotRequired[str]
    queue: NotRequired[str]
    lane: NotRequired[str]
    topic: NotRequired[str]
    """What an application published the event under."""
    n: int
    """
    Its place within that, from 1, without gaps. 0: an application's event, which has no
    number but `seq`.
    """
    type: str
    at: Time
    data: dict[str, Any]
    """
    Of `job.output.delta`: `text`, the `offset` of its first character and the `epoch`,
    which is the `n` of its attempt's `job.started`. A delta at offset 0 makes all text
    before it void.
    """


class HistoryPage(TypedDict):
    """Events of a job, the oldest first."""

    items: list[Event]
    total: int
    """How many events the job has in all."""
    more: bool
    """Whether there are more after these."""


class StoredStep(TypedDict):
    """A step of a job's handler whose result is stored."""

    n: NotRequired[int | None]
    """Its number, for a fork `from` it."""
    name: str
    kind: str
    """`step`, or the model call: `ask`, `embed` …"""
    state: Literal["stored", "begun", "in_doubt"]
    """`in_doubt`: a run that was lost began it; nobody knows its end."""
    doubts: int
    """How many runs that were lost began it."""
    run: int
    """The number of the `job.started` event of its run."""
    stored_at: str
    size: int
    """Characters of the result as JSON."""
    result: NotRequired[Any]
    """The result, if it is not too large."""


class SuspectedSpend(TypedDict):
    """Model calls that may have been charged, besides the job's usage."""

    calls: int
    input_tokens: int
    """Estimated from the length of the requests."""


class StoredWait(TypedDict):
    """A wait of a job's handler, or a signal that came before its wait."""

    name: str
    reason: str
    """`signal`, `question` or `job`."""
    state: Literal["open", "signalled", "timed_out"]
    generation: int
    asked_at: str | None
    """When the handler came to it; null: no wait has asked for it."""
    until: str | None
    """When it times out."""
    decided_at: str | None
    size: int
    """Characters of the value as JSON."""
    value: NotRequired[Any]
    """The value, if it is not too large."""


class StepList(TypedDict):
    """Stored steps and waits, the oldest first."""

    items: list[StoredStep]
    waits: list[StoredWait]
    suspected: SuspectedSpend


class ForkQuote(TypedDict):
    """What a fork would take."""

    reused: list[str]
    """The steps whose results it uses."""
    quote: Quote


class Impact(TypedDict):
    """Whom a group hit, as far as its jobs are among the newest 10,000."""

    jobs: int
    users: int
    cost_usd: str
    """Of calls of models whose cost is known."""


class FailureGroup(TypedDict):
    """Dead letters with the same cause."""

    fingerprint: str
    capability: str
    code: str
    count: int
    first_at: Time
    last_at: Time
    sample_id: str
    impact: Impact | None
    """Only with `impact=true`."""
    links: dict[str, str]


class FailurePage(TypedDict):
    """Groups of dead letters, the latest first."""

    items: list[FailureGroup]
    next_cursor: NotRequired[None]
    more: bool
    """Whether there are more groups than `limit`."""


class Retried(TypedDict):
    """What a retry of many came to."""

    matched: int
    """Total number of matches, including those beyond `limit`."""
    retried: int
    remaining: int
    """Number of matches that still wait."""
    dry_run: bool
