"""The asynchronous client."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

import httpx2

from backburner.client.asynchronous_groups import AsyncGroups
from backburner.client.connection import Connection
from backburner.client.dialogue import (
    LONGEST_WAIT,
    Answer,
    Dialogue,
    Done,
    Emit,
    Open,
    Pause,
    Read,
    RequestPolicy,
    SendRequest,
    Step,
    StreamMessage,
    advance,
    job_path,
    new_key,
    not_sendable,
    result_of,
    unreachable,
)
from backburner.client.errors import ClientError
from backburner.client.features import AsyncFeatures
from backburner.client.options import (
    SAME_INPUT,
    BudgetOptions,
    EventsQuery,
    JobChange,
    JobsQuery,
    RetryQuery,
    ScheduleOptions,
    SubmitOptions,
    UsageQuery,
)
from backburner.domain.events.text import Piece
from backburner.shapes.jobs import (
    Event,
    FailureGroup,
    ForkQuote,
    Job,
    Question,
    Retried,
    Signal,
    StoredStep,
)
from backburner.shapes.operations import (
    BudgetHistory,
    Budgets,
    CapabilityInfo,
    Endpoint,
    Lane,
    Queue,
    Schedule,
    SecretEndpoint,
    Worker,
)
from backburner.shapes.usage import Quote, UsageReport

T = TypeVar("T")


class AsyncClient(AsyncGroups, AsyncFeatures):
    """
    Talks to one server. Close it, or use it in an `async with` block.

    The URL and the key default to `BACKBURNER_URL` and `BACKBURNER_API_KEY`. Calls that
    are safe to repeat are retried `retries` times, unless the server demands a longer
    wait than `longest_pause` seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 2,
        longest_pause: float = 30.0,
    ) -> None:
        self._connection = Connection(url, api_key, timeout)
        self._http = httpx2.AsyncClient(**self._connection.settings())
        self._ask = RequestPolicy(retries, longest_pause)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._connection.url

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ready(self) -> None:
        """Raise `ClientError` unless the server accepts jobs."""
        await self._run(
            self._ask.ask(SendRequest("GET", "/readyz", is_repeatable=False))
        )

    async def call(
        self, method: str, path: str, body: Any = None, **params: Any
    ) -> Any:
        """
        Call a route of an application and return its JSON response.

        `client.call("GET", "/api/v2/search", q="pump")`: named arguments become the
        query. Only GET is retried if there is no response.
        """
        return await self._run(self._ask.call(method, path, body, params=params))

    async def submit(
        self,
        capability: str,
        value: Any,
        *,
        key: str | None = None,
        is_repeatable: bool = True,
        **options: Unpack[SubmitOptions],
    ) -> "AsyncTicket":
        """
        Submit a job; it is durable when this returns.

        An idempotency key is generated if you give none, so that the call can be
        retried without creating a second job. With `is_repeatable=False` there is no
        key and no retry.
        """
        chosen = key or (new_key() if is_repeatable else None)
        job = await self._run(self._ask.submit(capability, value, chosen, options))
        return AsyncTicket(self, job)

    async def ticket(self, job_id: str) -> "AsyncTicket":
        """Return the ticket of a job that was submitted before."""
        return AsyncTicket(self, await self.get(job_id))

    async def get(self, job_id: str, *, wait: float = 0) -> Job:
        """Return the job, once it has ended or after at most `wait` seconds."""
        return await self._run(self._ask.get(job_id, wait))

    def follow(
        self, job_id: str, *, timeout: float | None = None, every: float = LONGEST_WAIT
    ) -> AsyncIterator[Job]:
        """Yield the job at intervals, and at last at its end or at the timeout."""
        return self._each(self._ask.follow(job_id, timeout, every))

    async def wait(self, job_id: str, *, timeout: float | None = None) -> Job:
        """Return the job once it has ended, or as it is after the timeout."""
        return await self._run(self._ask.follow(job_id, timeout))

    async def result(self, job_id: str, *, timeout: float | None = None) -> Any:
        """Return the output once it is available; raise `JobFailed` or `NotYet`."""
        return result_of(await self.wait(job_id, timeout=timeout))

    def events(self, job_id: str) -> AsyncIterator[Event]:
        """Yield all events of a job, once and in order, until it ends."""
        return self._each(self._ask.events(job_id))

    def pieces(self, job_id: str) -> AsyncIterator[Piece]:
        """Yield the text that a job streams, as it grows, until the job ends."""
        return self._each(self._ask.pieces(job_id))

    async def text(self, job_id: str) -> str:
        """Wait for the end of a job, and return the text that it streamed."""
        return await self._run(self._ask.pieces(job_id))

    def all_events(
        self, *, after: int | None = None, **which: Unpack[EventsQuery]
    ) -> AsyncIterator[Event]:
        """Yield all events from now on, or after the event `after`, without end."""
        return self._each(self._ask.all_events(after, which))

    async def quote(
        self, capability: str, value: Any, **options: Unpack[SubmitOptions]
    ) -> Quote:
        """Return what a job would use and cost, and when it would start and end."""
        return await self._run(self._ask.quote(capability, value, options))

    async def usage(self, **which: Unpack[UsageQuery]) -> UsageReport:
        """Return the model usage of jobs, by tag, model, day and others."""
        return await self._run(self._ask.usage(which))

    async def cancel(self, job_id: str) -> Job:
        """Cancel a job; repeating it is no error."""
        return await self._run(self._ask.cancel(job_id))

    async def change(self, job_id: str, **change: Unpack[JobChange]) -> Job:
        """Change the `priority` or `run_at` of a job that has not started."""
        return await self._run(self._ask.change(job_id, change))

    async def retry(self, job_id: str, *, fresh: bool = False) -> Job:
        """Queue a dead letter again."""
        return await self._run(self._ask.retry(job_id, fresh=fresh))

    async def fork(self, job_id: str, start: str | int, value: Any = SAME_INPUT) -> Job:
        """
        Run a job again from one of its steps, as a new job; see docs/steps.md.

        `start` is the step's name or number. With another input as `value`, the results
        of earlier steps are reused in their order.
        """
        forked: Job = await self._run(
            self._ask.fork(job_id, start, value, dry_run=False)
        )
        return forked

    async def quote_fork(
        self, job_id: str, start: str | int, value: Any = SAME_INPUT
    ) -> ForkQuote:
        """Return what a fork would use, and which results it would reuse."""
        forked: ForkQuote = await self._run(
            self._ask.fork(job_id, start, value, dry_run=True)
        )
        return forked

    async def signal(self, job_id: str, name: str, value: Any = None) -> Signal:
        """
        Send the signal that a job's handler awaits with `ctx.wait(name)`.

        It may be sent before the handler waits. Repeating it with the same value is no
        error; another value raises `Conflict`.
        """
        return await self._run(self._ask.signal(job_id, name, value))

    async def answer(self, job_id: str, name: str, value: Any) -> Signal:
        """Answer a question of a job; a different second answer raises `Conflict`."""
        return await self._run(self._ask.answer(job_id, name, value))

    async def questions(self) -> Sequence[Question]:
        """Return the newest open questions that this key may answer."""
        path = "/v1/questions?limit=100"
        return await self._run(self._ask.items(path))

    async def retry_many(self, **which: Unpack[RetryQuery]) -> Retried:
        """Queue all dead letters that match again."""
        return await self._run(self._ask.retry_many(which))

    def jobs(self, **which: Unpack[JobsQuery]) -> AsyncIterator[Job]:
        """Yield jobs, newest first, page by page."""
        return self._each(self._ask.jobs(which))

    def failures(self) -> AsyncIterator[FailureGroup]:
        """Yield groups of dead letters with the same kind of failure, latest first."""
        return self._each(self._ask.failures())

    def dead_letters(self, fingerprint: str | None = None) -> AsyncIterator[Job]:
        """Yield dead letters, or those of one group, newest first, page by page."""
        return self._each(self._ask.dead_letters(fingerprint))

    async def queues(self) -> Sequence[Queue]:
        """Return the queues, by name."""
        return await self._run(self._ask.items("/v1/queues"))

    async def pause_queue(self, name: str) -> Queue:
        """Stop starting jobs of a queue; running jobs continue."""
        return await self._run(self._ask.pause_queue(name, paused=True))

    async def resume_queue(self, name: str) -> Queue:
        """Resume a queue."""
        return await self._run(self._ask.pause_queue(name, paused=False))

    async def budgets(self) -> Budgets:
        """Return the budgets that apply to this caller, and their state."""
        return await self._run(self._ask.budgets())

    async def budget_history(
        self,
        scope: str,
        of: str,
        *,
        unit: str = "tokens",
        per_seconds: int = 86_400,
    ) -> BudgetHistory:
        """Return how a budget was used in its current window."""
        return await self._run(
            self._ask.budget_history(scope, of, unit=unit, per_seconds=per_seconds)
        )

    async def set_budget(self, scope: str, **said: Unpack[BudgetOptions]) -> Budgets:
        """Set a budget in `tokens` or `money`, for all values of a scope or one."""
        return await self._run(self._ask.set_budget(scope, said))

    async def drop_budget(
        self,
        scope: str,
        *,
        unit: str = "tokens",
        per_seconds: int = 86_400,
        of: str | None = None,
    ) -> Budgets:
        """Delete a budget; existing holds stay until they end."""
        return await self._run(
            self._ask.drop_budget(scope, unit=unit, per_seconds=per_seconds, of=of)
        )

    async def steps(self, job_id: str) -> Sequence[StoredStep]:
        """Return the stored steps of a job, the oldest first."""
        path = f"{job_path(job_id)}/steps"
        return await self._run(self._ask.items(path))

    async def capabilities(self) -> Sequence[CapabilityInfo]:
        """Return the capabilities that the server knows."""
        known: Sequence[CapabilityInfo]
        known = await self._run(self._ask.items("/v1/capabilities"))
        return known

    async def lanes(self) -> Sequence[Lane]:
        """Return the lanes to providers, by name."""
        return await self._run(self._ask.items("/v1/lanes"))

    async def workers(self) -> Sequence[Worker]:
        """Return the workers, the oldest first."""
        return await self._run(self._ask.items("/v1/workers"))

    async def drain_worker(self, worker_id: str) -> Worker:
        """Let a worker finish its jobs and claim no more."""
        return await self._run(self._ask.drain_worker(worker_id, draining=True))

    async def resume_worker(self, worker_id: str) -> Worker:
        """Let a drained worker claim jobs again."""
        return await self._run(self._ask.drain_worker(worker_id, draining=False))

    async def set_schedule(
        self, name: str, capability: str, cron: str, **said: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Save a schedule, replacing one with the same name."""
        saving = self._ask.set_schedule(name, capability, cron, said)
        return await self._run(saving)

    async def delete_schedule(self, name: str) -> None:
        """Delete a saved schedule."""
        await self._run(self._ask.delete_schedule(name))

    async def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule from submitting jobs."""
        return await self._run(self._ask.pause_schedule(name, paused=True))

    async def resume_schedule(self, name: str) -> Schedule:
        """Resume a schedule from its next time on."""
        return await self._run(self._ask.pause_schedule(name, paused=False))

    async def run_schedule(self, name: str) -> Job:
        """Submit a schedule's job now."""
        return await self._run(self._ask.run_schedule(name))

    async def schedules(self) -> Sequence[Schedule]:
        """Return the schedules, by name."""
        return await self._run(self._ask.items("/v1/schedules"))

    def endpoints(self) -> AsyncIterator[Endpoint]:
        """Yield the webhook endpoints, newest first, page by page."""
        return self._each(self._ask.pages("/v1/endpoints", {}))

    async def create_endpoint(self, url: str) -> SecretEndpoint:
        """Return the webhook endpoint for a URL, new or existing, with its secrets."""
        return await self._run(self._ask.create_endpoint(url))

    async def rotate_endpoint(self, endpoint_id: str) -> SecretEndpoint:
        """Give an endpoint a new secret; the old one stays valid for a day."""
        change = self._ask.change_endpoint(endpoint_id, "rotate")
        changed: SecretEndpoint = await self._run(change)
        return changed

    async def enable_endpoint(self, endpoint_id: str) -> Endpoint:
        """Resume sending webhooks to an endpoint."""
        change = self._ask.change_endpoint(endpoint_id, "enable")
        changed: Endpoint = await self._run(change)
        return changed

    async def disable_endpoint(self, endpoint_id: str) -> Endpoint:
        """Stop sending webhooks to an endpoint."""
        change = self._ask.change_endpoint(endpoint_id, "disable")
        changed: Endpoint = await self._run(change)
        return changed

    def deliveries(self, subject: str) -> AsyncIterator[Job]:
        """Yield the webhook deliveries of a job, flow or batch, newest first."""
        return self._each(self._ask.deliveries(subject))

    async def replay(self, delivery_id: str) -> Job:
        """Send a webhook again, with the same id."""
        return await self._run(self._ask.replay(delivery_id))

    async def _run(self, dialogue: Dialogue[T]) -> T:
        async with _Line(self._http, self._connection) as line:
            step = advance(dialogue, None)
            while not isinstance(step, Done):
                step = advance(dialogue, await line.take(step))
            return step.value

    async def _each(self, dialogue: Dialogue[Any]) -> AsyncIterator[Any]:
        async with _Line(self._http, self._connection) as line:
            step = advance(dialogue, None)
            while not isinstance(step, Done):
                if isinstance(step, Emit):
                    yield step.value
                step = advance(dialogue, await line.take(step))


class AsyncTicket:
    """A submitted job, with its last known data."""

    def __init__(self, client: AsyncClient, job: Job) -> None:
        self._client = client
        self.job = job

    def __repr__(self) -> str:
        return f"AsyncTicket({self.id!r})"

    def __getitem__(self, name: str) -> Any:
        """Return a field of the job's last known data."""
        return dict(self.job)[name]

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job["id"]

    @property
    def state(self) -> str:
        """The last known state of the job."""
        return self.job["state"]

    async def refresh(self) -> Job:
        """Fetch the current data of the job."""
        self.job = await self._client.get(self.id)
        return self.job

    async def wait(self, timeout: float | None = None) -> Job:
        """Return the job once it has ended, or as it is after the timeout."""
        self.job = await self._client.wait(self.id, timeout=timeout)
        return self.job

    async def result(self, timeout: float | None = None) -> Any:
        """Return the output once it is available; raise `JobFailed` or `NotYet`."""
        return result_of(await self.wait(timeout))

    def stream(self) -> AsyncIterator[Event]:
        """Yield all events of the job, once and in order, until it ends."""
        return self._client.events(self.id)

    def pieces(self) -> AsyncIterator[Piece]:
        """Yield the text that the job streams, as it grows, until the job ends."""
        return self._client.pieces(self.id)

    async def text(self) -> str:
        """Wait for the end of the job, and return the text that it streamed."""
        return await self._client.text(self.id)

    async def cancel(self) -> Job:
        """Cancel the job; repeating it is no error."""
        self.job = await self._client.cancel(self.id)
        return self.job

    async def signal(self, name: str, value: Any = None) -> Signal:
        """Send the signal that the job's handler awaits with `ctx.wait(name)`."""
        return await self._client.signal(self.id, name, value)

    async def retry(self, *, fresh: bool = False) -> Job:
        """Queue the job again if it failed; `fresh` discards its stored steps."""
        self.job = await self._client.retry(self.id, fresh=fresh)
        return self.job


class _Line:
    """Executes the steps of one dialogue, and holds its event stream."""

    def __init__(self, http: httpx2.AsyncClient, connection: Connection) -> None:
        self._http = http
        self._connection = connection
        self._stack = AsyncExitStack()
        self._messages: AsyncGenerator[httpx2.ServerSentEvent, None]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def take(self, step: Step) -> Answer | StreamMessage | ClientError | None:
        """Execute a step; an error is returned, not raised."""
        try:
            return await self._take(step)
        except httpx2.HTTPError as error:
            return unreachable(self._connection.url, error)
        except UnicodeEncodeError:
            return not_sendable()

    async def _take(self, step: Step) -> Answer | StreamMessage | None:
        match step:
            case SendRequest():
                response = await self._http.request(**self._connection.request(step))
                return Answer(response.status_code, response.headers, response.content)
            case Open():
                return await self._open(step)
            case Read():
                message = await anext(self._messages, None)
                return (
                    None if message is None else StreamMessage(message.id, message.data)
                )
            case Pause():
                await asyncio.sleep(step.seconds)
            case Emit():
                pass  # the caller has already received the value
        return None

    async def _open(self, step: Open) -> Answer:
        await self._stack.aclose()
        stream = self._http.sse(**self._connection.stream(step))
        source = await self._stack.enter_async_context(stream)
        response = source.response
        answer = Answer(response.status_code, response.headers, b"")
        if not answer.is_success:
            return answer._replace(body=await response.aread())
        # An async generator that is not exhausted must be closed.
        self._messages = cast("AsyncGenerator[Any, None]", aiter(source))
        self._stack.push_async_callback(self._messages.aclose)
        return answer
