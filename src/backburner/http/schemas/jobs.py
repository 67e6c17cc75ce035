"""
Request and response models of the API.

Responses are written by `wire`; their models are used for OpenAPI and in tests.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
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

from backburner.domain.errors import InvalidInput
from backburner.domain.events.publication import TOPIC_PATTERN
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.step import FORK_TAG
from backburner.domain.webhooks.address import LONGEST_URL
from backburner.engine.access.signed_urls import LONGEST, USUAL
from backburner.engine.groups.bulk import MOST_IDS
from backburner.engine.submit.submission import (
    MAX_METADATA,
    MAX_METADATA_KEY,
    MAX_METADATA_VALUE,
    MAX_TAG_LENGTH,
    MAX_TAGS,
    MAX_TOKENS,
    check_sought,
)
from backburner.http.schemas.models import list_of, model_of, page_of
from backburner.shapes import jobs, operations, problems

MAX_LIMIT: Final = 200
MAX_RETRIES: Final = 1_000
MAX_CRON: Final = 100
MAX_CURSOR: Final = 2**63 - 1

LAST: Final = datetime.max.replace(microsecond=999_000, tzinfo=UTC)
"""The last time that the API can write: its times have milliseconds."""

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def read_time(value: Any) -> Any:
    """Parse an RFC 3339 time, which must have a zone."""
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise ValueError("must be an RFC 3339 time, such as 2030-01-31T12:00:00Z")
    try:
        moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (OverflowError, ValueError):
        raise ValueError("must be a time that exists") from None
    if moment > LAST:
        raise ValueError("must not be later than 9999-12-31T23:59:59.999Z")
    return moment


Time = Annotated[datetime, BeforeValidator(read_time)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG_LENGTH)]
RESERVED_TAGS: Final = (
    *("bulk:", "completion:", "delivery:"),
    *(FORK_TAG, "guard:", "schedule:", "tick:"),
)
"""The prefixes of tags that only the server sets."""


def read_tag(value: str) -> str:
    """Refuse a tag that says that the server made the job."""
    if value.startswith(RESERVED_TAGS):
        prefixes = ", ".join(RESERVED_TAGS)
        raise ValueError(f"must not begin with a reserved prefix: {prefixes}")
    return value


Tags = Annotated[
    list[Annotated[Tag, AfterValidator(read_tag)]],
    Field(max_length=MAX_TAGS, description="Tags to filter by; printable text."),
]
TopicName = Annotated[str, StringConstraints(pattern=TOPIC_PATTERN)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
JobId = Annotated[str, StringConstraints(min_length=1, max_length=100)]
MetadataKey = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_METADATA_KEY)
]
MetadataValue = Annotated[str, StringConstraints(max_length=MAX_METADATA_VALUE)]
Metadata = Annotated[
    dict[MetadataKey, MetadataValue] | None,
    Field(
        max_length=MAX_METADATA,
        description="Texts by name that are kept with the job and shown with it.",
    ),
]


def read_pairs(pairs: Any) -> Any:
    """Accept a single pair in place of a list."""
    return [pairs] if isinstance(pairs, str) else pairs


def check_pairs(pairs: list[str]) -> list[str]:
    """Refuse pairs that are malformed, or that no job can have."""
    if not all("=" in pair for pair in pairs):
        raise ValueError("must be NAME=TEXT, such as order=A-1042")
    metadata = metadata_of(pairs)
    if len(metadata) < len(pairs):
        raise ValueError("must not contain a name twice")
    try:
        check_sought(metadata)
    except InvalidInput as error:
        raise ValueError(error.fields[0].message) from None
    return pairs


def metadata_of(pairs: Iterable[str]) -> dict[str, str]:
    """Split each pair at its first `=`."""
    parts = (pair.partition("=") for pair in pairs)
    return {name: text for name, _, text in parts}


Pairs = Annotated[
    list[str],
    BeforeValidator(read_pairs),
    AfterValidator(check_pairs),
    Field(
        description="`NAME=TEXT`, exactly as in the metadata; several must all match.",
        examples=[["order=A-1042"]],
    ),
]
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class Asked(BaseModel):
    """A request body: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """
        Describe the model without `default`, which is added to the descriptions.

        Generators of clients, openapi-typescript among them, treat a field with a
        default as always present, and require it from callers.
        """
        described = handler(core)
        for field in handler.resolve_ref_schema(described)["properties"].values():
            default = field.pop("default", None)
            if default is not None:
                told = field.get("description", "")
                field["description"] = f"{told} Default: {default!r}.".strip()
        return described


class CallbackRequest(Asked):
    """The receiver of a webhook: a URL, or a stored endpoint."""

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
    """Convert a callback for the engine."""
    return None if asked is None else asked.model_dump(exclude_none=True)


class JobCompletionRequest(Asked):
    """The job to submit when another one ends."""

    capability: Name = Field(description="Name of the capability.")
    input: dict[str, Any] = Field(
        {},
        description="Input of the job. The field `job` is added to it: the ended job's "
        "`id`, `capability`, `state`, `generation`, and its `output` or `error`.",
    )


def followed_by(asked: JobCompletionRequest | None) -> dict[str, Any] | None:
    """Convert a completion for the engine."""
    return None if asked is None else asked.model_dump(exclude_unset=True)


Completion = Annotated[
    JobCompletionRequest | None,
    Field(description="The job to submit when it ends, in whatever state."),
]


class JobRequest(Asked):
    """A job to submit."""

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
    tags: Tags = Field([])
    metadata: Metadata = None
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
    """Selects dead letters to retry. Fields that are left out do not restrict."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"capability": "demo.fail", "dry_run": True}]}
    )

    capability: Name | None = None
    queue: Name | None = None
    fingerprint: Name | None = None
    limit: int = Field(100, ge=1, le=MAX_RETRIES, description="Only the newest N.")
    canary: int | None = Field(
        None, ge=1, le=MAX_RETRIES, description="Retry only N of them, as a test."
    )
    rate: float | None = Field(
        None, ge=0.01, le=1000, description="Retries per second; the rest wait."
    )
    dry_run: bool = Field(False, description="Only count the matches.")


def read_states(value: Any) -> frozenset[JobState]:
    """Parse states that are separated by commas; refuse everything else."""
    names = value.split(",") if isinstance(value, str) else [""]
    known = [state.value for state in JobState]
    if not set(names) <= set(known):
        raise ValueError(f"must be some of {', '.join(known)}, separated by commas")
    return frozenset(map(JobState, names))


States = Annotated[
    Any,  # a frozenset[JobState], which FastAPI would parse as a list
    BeforeValidator(read_states),
    WithJsonSchema({"type": "string", "examples": ["failed", "queued,running"]}),
]


class JobSelection(BaseModel):
    """Selects jobs. Fields that are left out do not restrict."""

    model_config = ConfigDict(extra="forbid")

    state: States | None = Field(
        None, description="One state, or several separated by commas."
    )
    capability: Name | None = None
    queue: Name | None = None
    tag: Tag | None = None
    metadata: Pairs | None = None
    user: Name | None = Field(
        None, description="Of this user; for callers that see the whole tenant."
    )
    since: Time | None = Field(None, description="Submitted at this time or later.")
    until: Time | None = Field(None, description="Submitted before this time.")
    fingerprint: Name | None = Field(
        None, description="Dead letters of this group; see `GET /v1/dead-letters`."
    )
    flow: Name | None = Field(None, description="Steps of this flow.")
    batch: Name | None = Field(None, description="Jobs of this batch.")
    worker: Name | None = Field(
        None, description="Jobs that this worker runs; `state` is then `running`."
    )

    @model_validator(mode="after")
    def _runs(self) -> Self:
        if self.worker is not None:
            if self.state not in (None, {JobState.RUNNING}):
                raise ValueError(
                    "`worker` selects running jobs: give no other `state` with it"
                )
            self.state = frozenset({JobState.RUNNING})
        return self


class BulkRequest(Asked):
    """An action for many jobs: those of `ids`, or all that match `where`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"action": "retry", "where": {"capability": "demo.fail"}}]
        }
    )

    action: Literal["cancel", "retry"]
    ids: list[JobId] | None = Field(None, min_length=1, max_length=MOST_IDS)
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
            raise ValueError("give either `ids` or `where`")
        if self.staged and (self.action != "retry" or self.where is None):
            raise ValueError("`staged` requires `retry` and `where`")
        return self


class JobQuery(JobSelection):
    """Selects jobs to list, and their order."""

    sort: Literal["newest", "oldest"] = Field(
        "newest", description="The order, by time of submission."
    )
    cursor: str | None = Field(None, description="`next_cursor` of the previous page.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class DeadLetterQuery(BaseModel):
    """Selects dead letters to list: groups, or the jobs of one group."""

    model_config = ConfigDict(extra="forbid")

    fingerprint: Name | None = Field(None, description="List the jobs of this group.")
    cursor: str | None = Field(None, description="`next_cursor` of the previous page.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)
    impact: bool = Field(False, description="Include the users affected by each group.")


class LinkQuery(BaseModel):
    """Selects the content and the lifetime of a link."""

    model_config = ConfigDict(extra="forbid")

    part: Literal["input", "output"] = "output"
    seconds: int = Field(
        USUAL // timedelta(seconds=1), ge=1, le=LONGEST // timedelta(seconds=1)
    )


class Signed(BaseModel):
    """The signature of a link."""

    model_config = ConfigDict(extra="forbid")

    exp: int = Field(ge=0, lt=2**53, description="Expiry in Unix seconds.")
    kid: str = Field(max_length=64, description="Id of the secret that signed it.")
    sig: str = Field(max_length=128, description="The signature.")


class LinkView(BaseModel):
    """A link that opens one content until it expires."""

    url: str
    size: int
    expires_at: datetime


SignalView = model_of(jobs.Signal)
QuestionPage = page_of(jobs.Question, "QuestionPage", "A page of questions.")
JobView = model_of(
    jobs.Job,
    examples=[
        {
            "id": "job_01999999-9999-7000-8000-000000000000",
            "user": "1",
            "capability": "demo.echo",
            "queue": "demo",
            "state": "succeeded",
            "priority": 0,
            "tags": [],
            "metadata": {"order": "A-1042"},
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
        },
    ],
)
JobPage = page_of(jobs.Job, "JobPage", "Jobs, newest first.")


class JobCount(BaseModel):
    """The number of matching jobs."""

    count: int
    capped: bool = Field(description="Whether counting stopped before the end.")


class ForkRequest(Asked):
    """The step from which a job runs again, as a new job."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"from": 1}]})

    start: Name | int = Field(
        alias="from",
        description="The first step to run again, by its name or its number `n`.",
    )
    input: Any = Field(
        None, description="New input. Default: the input of the original job."
    )


StepList = model_of(jobs.StepList)
ForkQuote = model_of(jobs.ForkQuote)
FailurePage = model_of(jobs.FailurePage)
Retried = model_of(jobs.Retried)


def refuse_several(named: Mapping[str, str | None]) -> None:
    """Refuse more than one of several exclusive options."""
    if sum(value is not None for value in named.values()) > 1:
        raise ValueError(f"give only one of {', '.join(named)}")


class EventQuery(BaseModel):
    """Selects events to stream: all, or those of one subject."""

    model_config = ConfigDict(extra="forbid")

    after: int | None = Field(
        None, ge=0, le=MAX_CURSOR, description="Last event that the reader has seen."
    )
    flow: Name | None = Field(None, description="Events of a flow and its steps.")
    batch: Name | None = Field(None, description="Events of a batch as a whole.")
    tag: Tag | None = Field(None, description="Events of jobs with this tag.")
    token: str | None = Field(None, description="A stream token, in place of a key.")
    topic: TopicName | None = Field(
        None, description="Events that applications publish under this topic."
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


EventView = model_of(
    jobs.Event,
    type={"examples": ["job.started", "job.progress", "job.output.delta"]},
)
HistoryPage = model_of(jobs.HistoryPage)


class CapabilityView(BaseModel):
    """A capability."""

    name: str
    description: str
    queue: str
    timeout_seconds: float
    max_attempts: int
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class CapabilityList(BaseModel):
    """The capabilities."""

    items: list[CapabilityView]


QueueView = model_of(operations.Queue)
QueueList = list_of(
    operations.Queue, "QueueList", "The queues that are declared or in use."
)
ScheduleList = list_of(
    operations.Schedule, "ScheduleList", "The declared and the saved schedules."
)


ScheduleView = model_of(operations.Schedule)
WorkerView = model_of(operations.Worker)
WorkerList = list_of(operations.Worker, "WorkerList", "The live workers.")


class ScheduleRequest(Asked):
    """A schedule to save; its jobs belong to the caller's user."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"capability": "demo.echo", "input": {}, "cron": "0 3 * * *"},
            ]
        }
    )

    capability: Name = Field(description="Name of the capability.")
    input: Any = Field(
        None, description="Input of up to 64 KiB; see the capability's schema."
    )
    cron: str = Field(
        min_length=1,
        max_length=MAX_CRON,
        description="Cron expression of five fields, or six with the seconds first.",
    )
    timezone: str = Field(
        "UTC", min_length=1, max_length=MAX_CRON, description="IANA name."
    )
    missed: Literal["skip", "run_once", "run_all"] = Field(
        "skip", description="What happens to ticks while no process ran."
    )


class JobChange(Asked):
    """Changes to a job that has not started. Fields that are left out stay."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "examples": [{"priority": 9}]}
    )

    priority: int | None = Field(
        None, ge=0, le=9, description="0 to 9; higher runs first."
    )
    run_at: Time | None = Field(
        None, description="Earliest start; null: as soon as possible."
    )

    @model_validator(mode="after")
    def _is_some(self) -> Self:
        if self.priority is None and "run_at" not in self.model_fields_set:
            raise ValueError("give `priority` or `run_at`")
        return self


class KeyRequest(Asked):
    """A key to create in the caller's tenant."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "web shop", "scopes": ["jobs:read", "jobs:write"]}]
        }
    )

    name: Name = Field(description="Name, to recognise the key.")
    scopes: list[Name] = Field(
        min_length=1, max_length=50, description="Scopes to grant."
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
    last_used_at: datetime | None = Field(description="Accurate to a minute.")


class NewKeyView(KeyView):
    """A key that was just created."""

    key: str = Field(description="The whole key. It is not shown again.")


class KeyList(BaseModel):
    """The keys of a tenant."""

    items: list[KeyView]


class AuditQuery(BaseModel):
    """Selects entries of the audit log."""

    model_config = ConfigDict(extra="forbid")

    before: int | None = Field(None, ge=0, lt=2**63, description="Only lower `seq`.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class AuditView(BaseModel):
    """An action of an administrator."""

    seq: int
    at: datetime
    actor: str = Field(description="The key's id.")
    action: str
    target: str
    request_id: str | None


class AuditPage(BaseModel):
    """Actions of administrators, newest first."""

    items: list[AuditView]


class Health(BaseModel):
    """The health of the server."""

    status: str
    unavailable: list[str] = []
    """Applications that are not served because their migration failed."""


Problem = model_of(problems.Problem)
