"""`Backburner`, the public entry point: submit, follow and run jobs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload
from urllib.parse import urlsplit

from pydantic_settings import BaseSettings

from backburner.app import App
from backburner.declarations import Declarations
from backburner.domain.costs.budget import Budget
from backburner.domain.jobs.job import Job, Owner, Submitted, Visibility
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.jobs.wait import Question
from backburner.domain.lanes.lane import Lane
from backburner.domain.queues.queue import Queue
from backburner.engine.access.keys import Keys
from backburner.engine.blobs.app_blobs import AppBlobs
from backburner.engine.engine import Engine
from backburner.engine.flow import NOTHING, Chain, Flow, written
from backburner.engine.groups.tickets import BatchTicket, FlowTicket
from backburner.engine.maintenance.schedule import Schedule
from backburner.engine.models.asking import Asker
from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.engine.registry import Capability
from backburner.engine.run.worker import Worker
from backburner.engine.submit.budgets import Budgets
from backburner.engine.submit.submission import (
    LOCAL,
    check_sought,
    group_options,
    job_options,
)
from backburner.engine.ticket import Ticket
from backburner.engine.transaction import Transaction, View
from backburner.engine.unserved import UnservedQueues
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.engine.webhooks.delivery import SCHEDULE
from backburner.ports.ai import Provider
from backburner.ports.broker import Broker
from backburner.ports.faults import Faults
from backburner.ports.store.maintenance import JobFilter
from backburner.settings import Settings, read
from backburner.startup import reach_of, read_apps
from backburner.wiring import Parts

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
In = TypeVar("In")
Out = TypeVar("Out")


class Backburner:
    """
    An instance over one store: submits jobs, and runs them if a worker is started.

    `async with Backburner(store="sqlite:///jobs.db", capabilities=[…]) as bb:`
    """

    def __init__(  # noqa: PLR0913 - each is a thing of its own
        self,
        settings: Settings | None = None,
        *,
        store: str | None = None,
        capabilities: Iterable[Capability[Any, Any]] = (),
        apps: Iterable[App] = (),
        app_settings: Iterable[BaseSettings] = (),
        address: str = "",
        queues: Iterable[Queue] = (),
        schedules: Iterable[Schedule] = (),
        budgets: Iterable[Budget] = (),
        lanes: Iterable[Lane] = (),
        faults: Faults | None = None,
        deliveries: RetryPolicy = SCHEDULE,
        broker: Broker | None = None,
        ai: Provider | Sequence[Provider] | None = None,
    ) -> None:
        """
        Create an instance; `deliveries` says when failed webhooks are sent again.

        `app_settings` replace settings that applications would read from the
        environment. `address` is the URL at which this process serves, if it does. A
        `broker` replaces the one in the settings, and `ai` the configured model
        providers.
        """
        self.settings = settings or read(store=store)
        self.address = address
        apps = tuple(apps)
        self._app_settings = read_apps(apps, app_settings)
        reach = reach_of(self.settings, apps, self._app_settings, address)
        self._given = Declarations(
            apps,
            self._app_settings,
            capabilities=capabilities,
            queues=queues,
            schedules=schedules,
            budgets=budgets,
            lanes=lanes,
        )
        self.registry = self._given.registry
        self.unavailable = self._given.unavailable
        """Applications whose schema is not the required one, and why."""
        self._parts = Parts(
            self.settings,
            self._given,
            reach,
            faults=faults,
            deliveries=deliveries,
            broker=broker,
            ai=ai,
        )
        self._worker: Worker | None = None
        self._unserved = UnservedQueues()

    @property
    def engine(self) -> Engine:
        """The engine, while Backburner is open."""
        return self._parts.engine

    def settings_of(self, model: type[S]) -> S:
        """Return an application's settings, by their model."""
        return self._app_settings.of(model)

    @property
    def budgets(self) -> Budgets:
        """Budgets, and holds without a job, while Backburner is open."""
        return self.engine.budgets

    def asker(self) -> Asker:
        """Return an asker outside of jobs, without lanes and ledger: see `calls`."""
        return Asker(self._parts.providers)

    @cached_property
    def callback_sender(self) -> CallbackSender:
        """The signer of applications' callbacks, which also checks their URLs."""
        return self._parts.callback_sender()

    @overload
    async def run(
        self,
        capability: Capability[In, Out],
        value: In,
        *,
        owner: Owner = LOCAL,
        key: str | None = None,
        request_id: str | None = None,
    ) -> Out: ...

    @overload
    async def run(
        self,
        capability: str,
        value: Any,
        *,
        owner: Owner = LOCAL,
        key: str | None = None,
        request_id: str | None = None,
    ) -> Any: ...

    async def run(
        self,
        capability: Capability[Any, Any] | str,
        value: Any,
        *,
        owner: Owner = LOCAL,
        key: str | None = None,
        request_id: str | None = None,
    ) -> Any:
        """
        Run a capability in this process, by the code of a job: return its result.

        There is no job, so no retry and no lane. Budgets hold the expected cost and are
        settled with the usage. Errors are raised.
        """
        submission = self._parts.submission
        found = submission.find(capability)
        options = job_options({"owner": owner, "key": key, "request_id": request_id})
        job = submission.prepare(found, value, options)
        job.id = submission.draw("call", job.created_at)
        return await self._parts.inline_runner(self.submit).run(found, job)

    @property
    def keys(self) -> Keys:
        """The API keys, while Backburner is open."""
        return self._parts.keys

    async def __aenter__(self) -> Self:
        await self._parts.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._worker is not None:
                await self.stop_worker(grace=0.0)
        finally:
            await self._parts.close()

    async def start_worker(self) -> None:
        """Start to run jobs in this process."""
        worker = self._parts.make_worker(self)
        await worker.start()
        self._worker = worker

    @property
    def running(self) -> int:
        """The number of jobs that run in this process."""
        return 0 if self._worker is None else self._worker.running

    async def stop_worker(self, grace: float | None = None) -> bool:
        """Stop running jobs; return whether all finished within the grace."""
        worker, self._worker = self._worker, None
        if worker is None:
            return True
        return await worker.stop(
            self.settings.grace_seconds if grace is None else grace
        )

    @overload
    async def submit(
        self,
        capability: Capability[In, Out],
        value: In,
        **options: Unpack[SubmitOptions],
    ) -> Ticket[Out]: ...

    @overload
    async def submit(
        self, capability: str, value: Any, **options: Unpack[SubmitOptions]
    ) -> Ticket[Any]: ...

    async def submit(
        self,
        capability: Capability[Any, Any] | str,
        value: Any,
        **options: Unpack[SubmitOptions],
    ) -> Ticket[Any]:
        """
        Submit a job; when this returns it is durable. Options: see `Options`.

        With a capability object, input and result are typed; with a name, they are
        JSON.
        """
        submitted = await self.engine.submit(capability, value, job_options(options))
        return self._ticket(submitted, capability)

    @overload
    async def submit_many(
        self,
        capability: Capability[In, Out],
        values: Sequence[In],
        **options: Unpack[SubmitOptions],
    ) -> Sequence[Ticket[Out]]: ...

    @overload
    async def submit_many(
        self, capability: str, values: Sequence[Any], **options: Unpack[SubmitOptions]
    ) -> Sequence[Ticket[Any]]: ...

    async def submit_many(
        self,
        capability: Capability[Any, Any] | str,
        values: Sequence[Any],
        **options: Unpack[SubmitOptions],
    ) -> Sequence[Ticket[Any]]:
        """Submit many jobs of one capability, all or none."""
        chosen = job_options(options)
        submitted = await self.engine.submit_many(
            [(capability, value, chosen) for value in values]
        )
        return [self._ticket(answer, capability) for answer in submitted]

    def _ticket(
        self, submitted: Submitted, capability: Capability[Any, Any] | str
    ) -> Ticket[Any]:
        output = None if isinstance(capability, str) else capability.output
        return Ticket(submitted, self.engine, output, self._unserved)

    async def submit_flow(
        self,
        flow: Flow | Chain,
        value: Any = NOTHING,
        **options: Unpack[SubmitGroupOptions],
    ) -> FlowTicket:
        """Submit a flow, or a chain with its input. Options: see `GroupOptions`."""
        wanted = (written(flow, value), group_options(options))
        return FlowTicket((await self.engine.flows.submit([wanted]))[0], self.engine)

    async def open_batch(
        self,
        jobs: Iterable[tuple[Capability[Any, Any] | str, Any]] = (),
        flows: Iterable[Flow] = (),
        *,
        expected: int | None = None,
        completion: Mapping[str, Any] | None = None,
        sealed: bool | None = None,
        **options: Unpack[SubmitGroupOptions],
    ) -> BatchTicket:
        """
        Store jobs and flows as one batch; with `expected`, more can be added later.

        `completion` names the job that follows: `{"capability": …, "input": …}`.
        """
        chosen = group_options(options)
        members = self.engine.batches.gather(jobs, flows, chosen)
        submitted = await self.engine.batches.open(
            chosen, members, expected=expected, completion=completion, sealed=sealed
        )
        return BatchTicket(submitted, self.engine, chosen)

    async def transact(
        self,
        body: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """
        Run a plain function in one transaction, including the jobs it submits.

        It gets the transaction and the other arguments: `transact(add, "a song")`.
        """
        return await self.engine.transact(lambda tx: body(tx, *args, **named))

    async def read(
        self, body: Callable[Concatenate[View, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """
        Run a plain function on a read-only snapshot of the committed data.

        The function gets a `View` and the other arguments. It blocks no writer.
        """
        return await self.engine.read(lambda view: body(view, *args, **named))

    def blobs(self, app: str, owner: Owner = LOCAL) -> AppBlobs:
        """
        Return the blobs of one application that belong to one owner.

        They outlive jobs: see `AppBlobs`. In a handler, use `ctx.app_blobs`.
        """
        return self._parts.blobs.of(app, owner)

    async def upload_origins(self) -> Sequence[str]:
        """Return the origins of signed URLs that are not URLs of this server."""
        signed = await self.blobs("pages").upload_url(size=1)
        place = urlsplit(signed.url)
        return [f"{place.scheme}://{place.netloc}"] if place.netloc else []

    async def find(self, job_id: str, owner: Owner = LOCAL) -> Job:
        """Return an owner's job with its whole input and output."""
        return await self.engine.payloads.whole(await self.engine.find(job_id, owner))

    async def jobs(
        self,
        owner: Owner = LOCAL,
        *,
        queue: str | None = None,
        capability: str | None = None,
        metadata: Mapping[str, str] | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[Job]:
        """
        Return an owner's jobs, the newest first, without their inputs and outputs.

        With `metadata`, those that have all of its texts under the same names. `before`
        is the `seq` of the last job of the previous page.
        """
        if metadata:
            check_sought(metadata)
        where = JobFilter(
            owner, capability=capability, queue=queue, metadata=metadata or None
        )
        return await self.engine.jobs(where, before=before, limit=limit)

    async def cancel(self, job_id: str, owner: Owner = LOCAL) -> Job:
        """Cancel a job; repeating it is no error."""
        ended = await self.engine.cancel(job_id, owner)
        return await self.engine.payloads.whole(ended)

    async def signal(
        self, job_id: str, name: str, value: Any = None, owner: Owner = LOCAL
    ) -> bool:
        """
        Send a job the value that its handler gets from `ctx.wait(name)`, now or later.

        The value is stored when this returns. `False`: the same value was stored
        before. `SignalConflict` if another value is stored, if the wait has timed out
        or if the job has ended.
        """
        return await self.engine.signal(job_id, name, value, owner)

    async def answer(
        self, job_id: str, name: str, value: Any, owner: Owner = LOCAL
    ) -> bool:
        """
        Answer a question that a handler asked with `ctx.ask_person`.

        `False`: the same answer was stored before. `SignalConflict` if the question is
        not open, `InvalidInput` if the value is not one of its choices.
        """
        return await self.engine.answer(job_id, name, value, owner)

    async def questions(self, owner: Visibility = LOCAL) -> Sequence[Question]:
        """Return the newest open questions of an owner's jobs."""
        return await self.engine.questions(owner)

    async def retry(self, job_id: str, owner: Owner = LOCAL) -> Job:
        """Queue a dead letter again."""
        queued = await self.engine.retry(job_id, owner)
        return await self.engine.payloads.whole(queued)
