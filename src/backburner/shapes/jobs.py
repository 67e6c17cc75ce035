"""Jobs, and what belongs to one: attempts, events, signals, questions and steps."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from backburner.domain.jobs.job import JobState, WaitReason
from backburner.shapes import Time
from backburner.shapes.usage import Quote, Receipt, Usage


class JobError(TypedDict):
    """Why a job failed, was returned to its queue or was cancelled."""

    code: str
    message: str
    retryable: bool
    retry_after: float | None


class Progress(TypedDict):
    """The progress of a job."""

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
    trace: NotRequired[str | None]
    """The stack trace of an error, if any; only with the scope `tenant:read`."""


class Links(TypedDict):
    """Related paths of a job."""

    self: str
    result: str
    events: str
    cancel: str


class Wait(TypedDict):
    """What the handler of a job waits for."""

    reason: Annotated[str, WaitReason]
    name: NotRequired[str]
    """Name of the signal or question, the lane, or the child job's id."""
    until: NotRequired[Time]
    """When it continues at the latest; left out: only when it is signalled."""


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
    metadata: dict[str, str]
    """What its caller keeps with it."""
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
    worker: NotRequired[str | None]
    """The worker that runs it; null if it is not running."""
    links: Links
    input: NotRequired[Any]
    """Only if a single job is requested."""
    input_from: NotRequired[Literal["needs"]]
    """The input is the output of its prerequisites."""
    output: NotRequired[Any]
    """Only if a single job is requested, and only if it has succeeded."""
    attempts: NotRequired[list[Attempt]]
    """Only if a single job is requested: the history of its attempts."""
    usage: NotRequired[Usage]
    """Only if it used a model."""
    receipt: NotRequired[Receipt]
    """Only in the response to a cancellation."""


class Signal(TypedDict):
    """A stored signal."""

    job_id: str
    name: str


class Question(TypedDict):
    """A question that a job asks people."""

    job_id: str
    name: str
    user: str
    """User that the job belongs to."""
    capability: str
    question: str
    choices: list[str] | None
    """The accepted answers, if they are restricted."""
    schema: dict[str, Any] | None
    """The JSON Schema of an answer, if it has one."""
    error: str | None
    """Why the previous answer was not accepted, if there was one."""
    default: Any
    """The default answer after the timeout …"""
    has_default: bool
    """… and whether there is one."""
    asked_at: Time
    until: Time | None
    """When the question times out, if ever."""
    links: dict[str, str]


class Event(TypedDict):
    """An event of a job, flow, batch, queue or lane, or one of an application."""

    seq: int
    """Its number among all events."""
    job_id: NotRequired[str]
    """The subject: exactly one of these six fields is present."""
    flow_id: NotRequired[str]
    batch_id: NotRequired[str]
    queue: NotRequired[str]
    lane: NotRequired[str]
    topic: NotRequired[str]
    """The topic of an event of an application."""
    n: int
    """
    Its number within the subject, from 1 without gaps; 0 for an event of an
    application, which is numbered by `seq` only.
    """
    type: str
    at: Time
    data: dict[str, Any]
    """
    For `job.output.delta`: `text`, the `offset` of its first character, and the
    `epoch`, which is the `n` of its attempt's `job.started` event. A delta at offset 0
    replaces all text before it.
    """


class HistoryPage(TypedDict):
    """Events of a job, oldest first."""

    items: list[Event]
    total: int
    """Number of all events of the job."""
    more: bool
    """Whether there are more events after these."""


class StoredStep(TypedDict):
    """A step of a job's handler whose result is stored."""

    n: NotRequired[int | None]
    """Its number, which can be used as `from` of a fork."""
    name: str
    kind: str
    """`step`, or the model call: `ask`, `embed` …"""
    state: Literal["stored", "begun", "in_doubt"]
    """`in_doubt` means that a lost run began it, and its end is unknown."""
    doubts: int
    """How many lost runs began it."""
    run: int
    """The number of the `job.started` event of its run."""
    stored_at: str
    duration_ms: int | None
    """How long it took, waits included; `null` if it has not ended or is unknown."""
    size: int
    """Length of the result as JSON, in characters."""
    result: NotRequired[Any]
    """The result, if it is not too large."""


class SuspectedSpend(TypedDict):
    """Model calls that may have been charged, in addition to the job's usage."""

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
    """When the handler reached it; null for a signal that no wait has used."""
    until: str | None
    """When it times out."""
    decided_at: str | None
    size: int
    """Length of the value as JSON, in characters."""
    value: NotRequired[Any]
    """The value, if it is not too large."""


class StepList(TypedDict):
    """Stored steps and waits, oldest first."""

    items: list[StoredStep]
    more: bool
    """Whether there are more steps than `limit`."""
    waits: list[StoredWait]
    suspected: SuspectedSpend


class ForkQuote(TypedDict):
    """What a fork would use."""

    reused: list[str]
    """The steps whose results it would reuse."""
    quote: Quote


class Impact(TypedDict):
    """The users affected by a group; only the newest 10,000 jobs are counted."""

    jobs: int
    users: int
    cost_usd: str
    """Of model calls whose cost is known."""


class FailureGroup(TypedDict):
    """Dead letters with the same cause."""

    fingerprint: str
    capability: str
    code: str
    message: str
    """The error message of the newest job, which is `sample_id`."""
    count: int
    first_at: Time
    last_at: Time
    sample_id: str
    impact: Impact | None
    """Only with `impact=true`."""
    links: dict[str, str]


class FailurePage(TypedDict):
    """Groups of dead letters, latest first."""

    items: list[FailureGroup]
    next_cursor: NotRequired[None]
    more: bool
    """Whether there are more groups than `limit`."""


class Retried(TypedDict):
    """The result of a retry of many dead letters."""

    matched: int
    """
    Total number of matches, including those beyond `limit`. Failed bulk actions, which
    cannot be retried, are not counted.
    """
    retried: int
    remaining: int
    """Number of matches that are still waiting."""
    dry_run: bool
