"""
Request and response models of the API.

Answers are written by `wire`; these models of them are for OpenAPI and for tests.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from backburner.domain.events.publication import TOPIC_PATTERN
from backburner.domain.jobs.job import JobState, WaitReason
from backburner.domain.webhooks.address import LONGEST_URL
from backburner.engine.access.signed_urls import LONGEST, USUAL
from backburner.engine.groups.bulk import MOST_IDS
from backburner.engine.submit.submission import MAX_TAG_LENGTH, MAX_TAGS, MAX_TOKENS
from backburner.http.schemas.usage import ReceiptView, UsageView

MAX_LIMIT: Final = 200
MAX_RETRIES: Final = 1_000
MAX_CURSOR: Final = 2**63 - 1

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def read_time(value: Any) -> Any:
    """Read an RFC 3339 time; it names its zone."""
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise ValueError("must be an RFC 3339 time, such as 2030-01-31T12:00:00Z")
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (OverflowError, ValueError):
        raise ValueError("must be a time that exists") from None


Time = Annotated[datetime, BeforeValidator(read_time)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG_LENGTH)]
TopicName = Annotated[str, StringConstraints(pattern=TOPIC_PATTERN)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class Asked(BaseModel):
    """Something that a caller sends: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """
        Describe it without `default`, which goes into the descriptions.

        Generators of clients, openapi-typescript among them, take a field with a
        default for one that is always there, and demand it of the caller.
        """
        described = handler(core)
        for field in handler.resolve_ref_schema(described)["properties"].values():
            default = field.pop("default", None)
            if default is not None:
                told = field.get("description", "")
                field["description"] = f"{told} Default: {default!r}.".strip()
        return described


class CallbackRequest(Asked):
    """Whom to tell of an end: a URL, or an endpoint that is kept here."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "maxProperties": 1}
    )

    url: str | None = Field(None, min_length=1, max_length=LONGEST_URL)
    endpoint: Name | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.url is None) == (self.endpoint is None):
            raise ValueError("give either `url` or `endpoint`")
        return self


def told_to(asked: CallbackRequest | None) -> dict[str, str] | None:
    """Return whom to tell of an end, as the engine takes it."""
    return None if asked is None else asked.model_dump(exclude_none=True)


class JobCompletionRequest(Asked):
    """The job that is submitted when another one ends."""

    capability: Name = Field(description="Name of the capability.")
    input: dict[str, Any] = Field(
        {},
        description="What it is done with. The field `job` is added to it: the job's "
        "`id`, `capability`, `state`, `generation`, and its `output` or `error`.",
    )


def followed_by(asked: JobCompletionRequest | None) -> dict[str, Any] | None:
    """Return the completion of a job, as the engine takes it."""
    return None if asked is None else asked.model_dump(exclude_unset=True)


Completion = Annotated[
    JobCompletionRequest | None,
    Field(description="The job to submit when it ends, however that is."),
]


class JobRequest(Asked):
    """A job to be done."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"capability": "demo.echo", "input": {"hello": "world"}},
                {
                    "capability": "demo.sleep",
                    "input": {"seconds": 5},
                    "priority": 5,
                    "tags": ["nightly"],
                },
            ]
        }
    )

    capability: Name = Field(description="Name of the capability.")
    input: Any = Field(description="Input; see the capability's schema.")
    queue: Name | None = Field(None, description="Queue, if not the capability's own.")
    priority: int = Field(0, ge=0, le=9, description="0 to 9; higher runs first.")
    run_at: Time | None = Field(None, description="Earliest start.")
    start_by: Time | None = Field(
        None, description="Fails unless started by this time."
    )
    deadline: Time | None = Field(
        None, description="Fails unless finished by this time."
    )
    max_attempts: int | None = Field(
        None, ge=1, le=100, description="Maximum runs, if not the capability's own."
    )
    tags: list[Tag] = Field(
        [], max_length=MAX_TAGS, description="Tags to filter by; printable text."
    )
    tokens: Tokens | None = Field(None, description="Expected number of tokens.")
    share: Tag | None = Field(
        None,
        description="Whose share of the queue it takes, if not the user's: for keys "
        "with `users:act`.",
    )
    callback: CallbackRequest | None = Field(
        None, description="Receiver of a webhook when it ends."
    )
    completion: Completion = None


class RetryRequest(Asked):
    """Which dead letters to queue again. What is left out does not restrict."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"capability": "demo.fail", "dry_run": True}]}
    )

    capability: Name | None = None
    queue: Name | None = None
    fingerprint: Name | None = None
    limit: int = Field(100, ge=1, le=MAX_RETRIES, description="Only the newest N.")
    canary: int | None = Field(
        None, ge=1, le=MAX_RETRIES, description="Start only N of them now."
    )
    rate: float | None = Field(
        None, ge=0.01, le=1000, description="Retries per second; the rest wait."
    )
    dry_run: bool = Field(False, description="Only count the matches.")


def read_states(value: Any) -> Any:
    """Read states, separated by commas."""
    if not isinstance(value, str):
        return value
    names = value.split(",")
    known = [state.value for state in JobState]
    if not set(names) <= set(known):
        raise ValueError(f"must be some of {', '.join(known)}, separated by commas")
    return frozenset(map(JobState, names))


States = Annotated[
    Any,  # a frozenset[JobState]; said so, FastAPI would take it for a list
    BeforeValidator(read_states),
    WithJsonSchema({"type": "string", "examples": ["failed", "queued,running"]}),
]


class JobSelection(BaseModel):
    """Which jobs are meant. What is left out does not restrict."""

    model_config = ConfigDict(extra="forbid")

    state: States | None = Field(
        None, description="One state, or several separated by commas."
    )
    capability: Name | None = None
    queue: Name | None = None
    tag: Tag | None = None
    user: Name | None = Field(
        None, description="Of this user; for callers that see the whole tenant."
    )
    since: Time | None = Field(None, description="Submitted at this time or later.")
    until: Time | None = Field(None, description="Submitted before this time.")
    fingerprint: Name | None = Field(
        None, description="Dead letters of this group; see `GET /v1/dead-letters`."
    )


class BulkRequest(Asked):
    """What to do with many jobs: those of `ids`, or all that match `where`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"action": "retry", "where": {"capability": "demo.fail"}}]
        }
    )

    action: Literal["cancel", "retry"]
    ids: list[Name] | None = Field(None, min_length=1, max_length=MOST_IDS)
    where: JobSelection | None = Field(
        None, description="The filters of a list; `{}` matches all."
    )
    staged: bool = Field(
        False,
        description="With `retry` and `where`: one job, then ten, then all; it stops "
        "if more than half of a stage fail again.",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.ids is None) == (self.where is None):
            raise ValueError("say either `ids` or `where`")
        if self.staged and (self.action != "retry" or self.where is None):
            raise ValueError("`staged` goes with `retry` and `where`")
        return self


class JobQuery(JobSelection):
    """Which jobs to list, and in which order."""

    flow: Name | None = Field(None, description="Steps of this flow.")
    batch: Name | None = Field(None, description="Jobs of this batch.")
    sort: Literal["newest", "oldest"] = Field(
        "newest", description="Which come first, by when they were submitted."
    )
    cursor: str | None = Field(None, description="`next_cursor` of the page before.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class DeadLetterQuery(BaseModel):
    """Which dead letters to list: groups, or the jobs of one group."""

    model_config = ConfigDict(extra="forbid")

    fingerprint: Name | None = Field(None, description="List the jobs of this group.")
    cursor: str | None = Field(None, description="`next_cursor` of the page before.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class LinkQuery(BaseModel):
    """Which content a link is to open, and for how long."""

    model_config = ConfigDict(extra="forbid")

    part: Literal["input", "output"] = "output"
    seconds: int = Field(
        USUAL // timedelta(seconds=1), ge=1, le=LONGEST // timedelta(seconds=1)
    )


class Signed(BaseModel):
    """What a link carries to prove itself."""

    model_config = ConfigDict(extra="forbid")

    exp: int = Field(ge=0, lt=2**53, description="When it ends, in Unix seconds.")
    kid: str = Field(max_length=64, description="Id of the secret that signed it.")
    sig: str = Field(max_length=128, description="The signature.")


class LinkView(BaseModel):
    """A link that opens one content for a while."""

    url: str
    size: int
    expires_at: datetime


class JobError(BaseModel):
    """Why a job failed, was put back or was cancelled."""

    code: str
    message: str
    retryable: bool
    retry_after: float | None


class AttemptView(BaseModel):
    """One run of a job."""

    generation: int
    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    error: dict[str, Any] | None
    trace: str | None = Field(
        None,
        description="The stack of what went wrong; with the scope `tenant:read` only.",
    )


class Links(BaseModel):
    """Where to go from a job."""

    self: str
    result: str
    events: str
    cancel: str


class WaitView(BaseModel):
    """What the handler of a job waits for."""

    reason: WaitReason
    name: str | None = Field(
        None, description="The signal or question, the lane, or the child job's id."
    )
    until: datetime | None = Field(
        None, description="When it goes on at the latest; left out: when it is told."
    )


class SignalView(BaseModel):
    """A signal that is stored."""

    job_id: str
    name: str


class QuestionView(BaseModel):
    """A question that a job asks people."""

    job_id: str
    name: str
    user: str = Field(description="Whose job it is.")
    capability: str
    question: str
    choices: list[str] | None = Field(description="The answers that are taken, if set.")
    schema_: dict[str, Any] | None = Field(
        alias="schema", description="The JSON Schema of an answer, if it has one."
    )
    error: str | None = Field(
        description="What was wrong with the answer before, if there was one."
    )
    asked_at: datetime
    until: datetime | None = Field(description="When it is given up, if ever.")
    links: dict[str, str]


class QuestionPage(BaseModel):
    """A page of questions."""

    items: list[QuestionView]
    next_cursor: str | None


class JobView(BaseModel):
    """A job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "job_01999999-9999-7000-8000-000000000000",
                    "user": "1",
                    "capability": "demo.echo",
                    "queue": "demo",
                    "state": "succeeded",
                    "priority": 0,
                    "tags": [],
                    "attempt": 1,
                    "max_attempts": 3,
                    "generation": 0,
                    "crashes": 0,
                    "progress": None,
                    "error": None,
                    "created_at": "2030-01-31T12:00:00.000Z",
                    "run_at": None,
                    "start_by": None,
                    "deadline": None,
                    "started_at": "2030-01-31T12:00:00.002Z",
                    "finished_at": "2030-01-31T12:00:00.003Z",
                    "wait": None,
                    "request_id": "5f0c6d0a2b7e4c11",
                    "flow_id": None,
                    "step": None,
                    "batch_id": None,
                    "forked_from": None,
                    "links": {
                        "self": "/v1/jobs/job_01999999-9999-7000-8000-000000000000",
                        "result": "/v1/jobs/job_01999999-…/result",
                        "events": "/v1/jobs/job_01999999-…/events",
                        "cancel": "/v1/jobs/job_01999999-…/cancel",
                    },
                }
            ]
        }
    )

    id: str
    user: str = Field(description="User that the job belongs to.")
    capability: str
    queue: str
    state: JobState
    priority: int
    tags: list[str]
    attempt: int
    max_attempts: int
    generation: int = Field(description="Number of manual retries.")
    crashes: int = Field(description="Number of lost workers.")
    progress: dict[str, Any] | None
    error: JobError | None
    created_at: datetime
    run_at: datetime | None
    start_by: datetime | None
    deadline: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    wait: WaitView | None = Field(
        description="What its handler waits for, if it is scheduled or waiting."
    )
    request_id: str | None
    flow_id: str | None = Field(description="The flow that it is a step of.")
    step: str | None = Field(description="Its name within that flow.")
    batch_id: str | None = Field(description="The batch that it is in.")
    forked_from: str | None = Field(None, description="The job that it is a fork of.")
    links: Links
    input: Any = Field(None, description="Only if a single job is requested.")
    input_from: Literal["needs"] | None = Field(
        None, description="The input is the output of its prerequisites."
    )
    output: Any = Field(None, description="As `input`, if the job has succeeded.")
    attempts: list[AttemptView] = Field([], description="As `input`: the history.")
    usage: UsageView | None = Field(None, description="If it used any model.")
    receipt: ReceiptView | None = Field(None, description="In answer to a cancel.")


class JobPage(BaseModel):
    """Jobs, newest first."""

    items: list[JobView]
    next_cursor: str | None


class JobCount(BaseModel):
    """How many jobs match."""

    count: int
    capped: bool = Field(description="Whether there are more: counting stopped.")


class StepView(BaseModel):
    """A step of a job's handler whose result is stored."""

    n: int | None = Field(None, description="Its number, for a fork `from` it.")
    name: str
    kind: str = Field(description="`step`, or the model call: `ask`, `embed` …")
    state: Literal["stored", "begun", "in_doubt"] = Field(
        description="`in_doubt`: a run that was lost began it; nobody knows its end."
    )
    doubts: int = Field(description="How many runs that were lost began it.")
    run: int = Field(description="The number of the `job.started` event of its run.")
    stored_at: str
    size: int = Field(description="Characters of the result as JSON.")
    result: Any = Field(None, description="The result, if it is not too large.")


class ForkRequest(Asked):
    """From which step on a job is to run again, as a new job."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"from": 1}]})

    start: str | int = Field(
        alias="from",
        description="The step that is run again, by its name or its number `n`.",
    )
    input: Any = Field(
        None, description="Another input. Left out, it is that of the job."
    )


class SuspectedSpend(BaseModel):
    """Model calls that may have been charged, besides the job's usage."""

    calls: int
    input_tokens: int = Field(description="Estimated from the length of the requests.")


class StepList(BaseModel):
    """Stored steps, the oldest first."""

    items: list[StepView]
    suspected: SuspectedSpend


class FailureGroupView(BaseModel):
    """Dead letters with the same cause."""

    fingerprint: str
    capability: str
    code: str
    count: int
    first_at: datetime
    last_at: datetime
    sample_id: str
    links: dict[str, str]


class FailurePage(BaseModel):
    """Groups of dead letters, the latest first."""

    items: list[FailureGroupView]
    next_cursor: None = None
    more: bool = Field(description="Whether there are more groups than `limit`.")


class Retried(BaseModel):
    """What a retry of many came to."""

    matched: int = Field(
        description="Total number of matches, including those beyond `limit`."
    )
    retried: int
    remaining: int = Field(description="Number of matches that still wait.")
    dry_run: bool


def refuse_several(named: Mapping[str, str | None]) -> None:
    """Refuse to be asked for more than one thing at once."""
    if sum(value is not None for value in named.values()) > 1:
        raise ValueError(f"give only one of {', '.join(named)}")


class EventQuery(BaseModel):
    """Which events to stream: all, or those about one thing."""

    model_config = ConfigDict(extra="forbid")

    after: int | None = Field(
        None, ge=0, le=MAX_CURSOR, description="Last event that the reader has seen."
    )
    flow: Name | None = Field(None, description="A flow's events and its steps'.")
    batch: Name | None = Field(None, description="A batch's own events.")
    tag: Tag | None = Field(None, description="The events of jobs with this tag.")
    token: str | None = Field(None, description="A stream token, in place of a key.")
    topic: TopicName | None = Field(
        None, description="What applications publish under this topic."
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        refuse_several(
            {
                "flow": self.flow,
                "batch": self.batch,
                "tag": self.tag,
                "topic": self.topic,
            }
        )
        return self


class EventView(BaseModel):
    """An event of a job, flow, batch, queue or lane, or one of an application."""

    seq: int = Field(description="Its place among all events.")
    job_id: str | None = Field(None, description="What it is about: one of these six.")
    flow_id: str | None = None
    batch_id: str | None = None
    queue: str | None = None
    lane: str | None = None
    topic: str | None = Field(
        None, description="What an application published the event under."
    )
    n: int = Field(
        description=(
            "Its place within that, from 1, without gaps. 0: an application's event, "
            "which has no number but `seq`."
        )
    )
    type: str = Field(examples=["job.started", "job.progress", "job.output.delta"])
    at: datetime
    data: dict[str, Any] = Field(
        description=(
            "Of `job.output.delta`: `text`, the `offset` of its first character and "
            "the `epoch`, which is the `n` of its attempt's `job.started`. A delta at "
            "offset 0 makes all text before it void."
        )
    )


class CapabilityView(BaseModel):
    """Something that can be asked for."""

    name: str
    description: str
    queue: str
    timeout_seconds: float
    max_attempts: int
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class CapabilityList(BaseModel):
    """What can be asked for."""

    items: list[CapabilityView]


class RateView(BaseModel):
    """So many starts in each window of time."""

    limit: int
    per_seconds: float


class TotalsView(BaseModel):
    """How often jobs of a queue ended, also of those that are deleted."""

    completed: int
    failed: int
    cancelled: int


class KeepView(BaseModel):
    """How long a queue keeps ended jobs; what is null is as everywhere."""

    succeeded_seconds: float | None
    failed_seconds: float | None
    succeeded_count: int | None
    failed_count: int | None


class QueueView(BaseModel):
    """A queue and the jobs in it."""

    name: str
    blocked: int
    scheduled: int
    queued: int
    running: int
    suspended: int = Field(
        description="Jobs in the state `waiting`: for a signal, an answer or a child."
    )
    oldest_queued_at: datetime | None
    paused: bool
    concurrency: int | None = Field(
        description="Maximum number of running jobs in total."
    )
    per_worker: int | None = Field(
        description="Maximum number of running jobs per worker."
    )
    rate: RateView | None
    limited_until: datetime | None = Field(
        description="When its rate lets jobs start again, if it does not now."
    )
    weights: dict[str, int] = Field(
        description="Weights of shares by name; 1 if not listed."
    )
    waiting: int | None = Field(description="Maximum number of waiting jobs per share.")
    keep: KeepView | None
    totals: TotalsView


class QueueList(BaseModel):
    """The queues that are in use or known."""

    items: list[QueueView]


class ScheduleView(BaseModel):
    """Something that is submitted again and again."""

    name: str
    capability: str
    cron: str
    timezone: str
    missed: str = Field(description="What happens to ticks while no process ran.")
    next_at: datetime
    last_at: datetime | None


class ScheduleList(BaseModel):
    """The schedules that were ever declared."""

    items: list[ScheduleView]


class WorkerView(BaseModel):
    """A worker."""

    id: str
    host: str
    pid: int
    slots: int
    queues: list[str]
    started_at: datetime


class WorkerList(BaseModel):
    """Who works."""

    items: list[WorkerView]


class KeyRequest(Asked):
    """A key to be made, for the caller's tenant."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "web shop", "scopes": ["jobs:read", "jobs:write"]}]
        }
    )

    name: Name = Field(description="What it is for.")
    scopes: list[Name] = Field(
        min_length=1, max_length=50, description="What it may do."
    )
    user: Name | None = Field(None, description="User that the key acts as.")
    expires_at: Time | None = Field(None, description="Expiry time.")


class KeyView(BaseModel):
    """A key, without its secret."""

    id: str
    name: str
    user: str | None
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="Within a minute.")


class NewKeyView(KeyView):
    """A key that was just made."""

    key: str = Field(description="The whole key. It is not shown again.")


class KeyList(BaseModel):
    """The keys of a tenant."""

    items: list[KeyView]


class AuditQuery(BaseModel):
    """Which acts to list."""

    model_config = ConfigDict(extra="forbid")

    before: int | None = Field(None, ge=0, lt=2**63, description="Below this `seq`.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class AuditView(BaseModel):
    """Something that an administrator did."""

    seq: int
    at: datetime
    actor: str = Field(description="The key's id.")
    action: str
    target: str
    request_id: str | None


class AuditPage(BaseModel):
    """Acts of administrators, newest first."""

    items: list[AuditView]


class Health(BaseModel):
    """That it is well."""

    status: str
    unavailable: list[str] = []
    """Applications that are not served because their migration failed."""


class FieldProblem(BaseModel):
    """One field and what is wrong with it."""

    path: str
    message: str


class BudgetProblem(BaseModel):
    """The budget that has no room; money is dollars as a decimal text."""

    scope: str
    unit: str
    limit: int | str
    left: int | str
    per_seconds: int


class Problem(BaseModel):
    """An error, by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable code for programs.")
    retryable: bool
    request_id: str
    retry_after: int | None = Field(None, description="Seconds.")
    errors: list[FieldProblem] = Field([], description="Invalid fields.")
    error: JobError | None = Field(None, description="Why a job has no result.")
    budget: BudgetProblem | None = Field(None, description="The exhausted budget.")
    depth: int | None = Field(None, description="Number of waiting jobs of the share.")
    cap: int | None = Field(None, description="Maximum number of waiting jobs.")
