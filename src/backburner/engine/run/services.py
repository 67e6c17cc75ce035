"""What a handler's context can use of the platform."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, Unpack

from backburner.domain.events.text import Draft
from backburner.domain.jobs.job import Claim, Instant, Job, Owner, Visibility
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.models.asking import Providers
from backburner.engine.models.lanes import LaneGate
from backburner.engine.models.usage import UsageSink
from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.engine.run.outbound import Http
from backburner.engine.run.steps import StepStorage
from backburner.engine.run.streaming import NoOutput, OutputSink
from backburner.engine.run.waiting import WaitStorage
from backburner.engine.transaction import Transaction, View
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.ports.app_settings import AppSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The job that a handler runs for."""

    id: str
    capability: str
    queue: str
    owner: Owner
    attempt: int
    max_attempts: int
    generation: int
    created_at: Instant
    request_id: str | None
    step: str | None = None
    """Its name within its flow, if it is a step."""
    traceparent: str | None = None
    """The trace context of its request."""


class Submit(Protocol):
    """Submits a job on behalf of the running one."""

    def __call__(
        self, capability: Any, value: Any, **options: Unpack[SubmitOptions]
    ) -> Awaitable[Any]:
        """Return the new job's ticket."""
        ...


class Running(NamedTuple):
    """A job that a worker is running."""

    job_id: str
    duration_ms: int
    """How long this run has taken so far."""


class Storage(StepStorage, WaitStorage, Protocol):
    """The database operations that handlers can use."""

    async def find(self, job_id: str, owner: Visibility) -> Job:
        """Return an owner's job."""
        ...

    async def running(self, queue: str) -> Sequence[Running]:
        """Return the running jobs of a queue, of all owners."""
        ...

    async def read(self, body: Callable[[View], T]) -> T:
        """Run a body on a read-only snapshot of the committed data."""
        ...

    async def transact(
        self, body: Callable[[Transaction], T], *, claim: Claim | None = None
    ) -> T:
        """Run a body in one transaction; raise `ClaimLost` if the claim is lost."""
        ...

    async def draft(self, job_id: str, owner: Owner) -> Draft:
        """Return the state of an owner's job and the text that it has streamed."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers may use; the same for every attempt of a worker."""

    submit: Submit
    output_sink: OutputSink = field(default_factory=NoOutput)
    engine: Storage | None = None
    payloads: Payloads = field(default_factory=Payloads)
    usage_sink: UsageSink | None = None
    lanes: LaneGate | None = None
    providers: Providers | None = None
    """The model providers that handlers can call."""
    callback_sender: CallbackSender | None = None
    """Delivers the callbacks of handlers, if this process can sign them."""
    app_settings: AppSettings = field(default_factory=AppSettings)
    http: Callable[[], Http] | None = None
    """Returns the HTTP client of handlers, which is created on first use."""
    lose: Callable[[Claim], None] | None = None
    """Called with the claim of a job that this worker no longer holds."""


def inherited(claim: Claim) -> SubmitGroupOptions:
    """Return the options that a job passes on to the jobs it submits."""
    return {
        "owner": Owner(claim.tenant, claim.user),
        "request_id": claim.request_id,
        "traceparent": claim.traceparent,
    }
