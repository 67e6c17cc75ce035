"""The context of a running handler."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from backburner.domain.errors import ClaimLost, PermanentError, TransientError
from backburner.domain.events.text import Draft
from backburner.domain.groups.flow import Edge
from backburner.domain.jobs.job import Owner
from backburner.engine.blobs.app_blobs import AppBlobs
from backburner.engine.blobs.payloads import JobBlobs
from backburner.engine.flow import Flow, Planned, Typed
from backburner.engine.options import SubmitOptions
from backburner.engine.run.model_context import ModelContext
from backburner.engine.run.outbound import Http
from backburner.engine.run.services import Running, Storage, inherited
from backburner.engine.run.step_context import StepContext
from backburner.engine.ticket import Ticket
from backburner.engine.transaction import Transaction, View

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
In = TypeVar("In")
Out = TypeVar("Out")


class Context(ModelContext, StepContext):
    """What a handler can use during one attempt. Nothing here outlives the attempt."""

    __slots__ = ()

    def settings_of(self, model: type[S]) -> S:
        """Return an application's settings: `ctx.settings_of(SongsSettings).limit`."""
        return self._services.app_settings.of(model)

    async def deliver(self, url: str, body: bytes, *, topic: str) -> None:
        """
        Post a signed body to a caller's URL; return once the receiver accepts it.

        Every attempt sends the same job id and request id. A failure is raised as the
        exception that fits it: try again, try later, or give up.
        """
        if self._services.callback_sender is None:
            raise TransientError("this process does not deliver webhooks")
        await self.flush()
        await self._services.callback_sender.send(self._claim, url, body, topic)

    @property
    def http(self) -> Http:
        """
        Sends HTTP requests: `await ctx.http.get(url)`, `await ctx.http.post(url)`.

        Only public addresses can be reached, and those that the operator allows.
        Responses are limited in size and time. A failure is raised as the exception
        that fits it: try again, try later, or give up.
        """
        if self._services.http is None:
            raise TransientError("this process does not send requests")
        return self._services.http()

    async def read(
        self, body: Callable[Concatenate[View, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """
        Run a plain function on a read-only snapshot of the committed data.

        The function gets a `View` and the other arguments.
        """
        return await self._database().read(lambda view: body(view, *args, **named))

    async def draft_of(self, job_id: str) -> Draft:
        """
        Return the state of another job and the text that it has streamed so far.

        The job must have the same owner as this one; otherwise `JobNotFound`.
        """
        owner = Owner(self._claim.tenant, self._claim.user)
        return await self._database().draft(job_id, owner)

    async def transact(
        self,
        body: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """
        Run a plain function in one transaction, committed when this returns.

        The function gets the transaction and the other arguments. The transaction
        commits only if this worker still holds the job; otherwise `ClaimLost` is raised
        and the attempt ends. A body that takes longer than
        `BACKBURNER_TRANSACTION_SECONDS` is rolled back: `TransactionTooLong`. If the
        job runs again, for example after its worker was lost, the body may commit
        again: make repeats harmless, or use `at_settlement`.
        """
        database = self._database()
        if not self._claim.token:
            raise PermanentError(
                "only a job can write to the database, and this call is not part of one"
            )
        await self.flush()
        try:
            return await database.transact(
                lambda tx: body(tx, *args, **named), claim=self._claim
            )
        except ClaimLost:
            if self._services.lose is not None:
                self._services.lose(self._claim)
            raise

    async def running(self, queue: str, *, longer_than: timedelta) -> list[Running]:
        """
        Return running jobs of a queue that have taken too long, of all owners.

        Only the newest 1,000 running jobs are looked at. For applications that report
        on their queues.
        """
        least = longer_than // timedelta(milliseconds=1)
        jobs = await self._database().running(queue)
        return [job for job in jobs if job.duration_ms > least]

    def _database(self) -> Storage:
        if self._services.engine is None:
            raise PermanentError("no database is available here")
        return self._services.engine

    def at_settlement(self, body: Callable[[Transaction], None]) -> None:
        """
        Write to the database in the transaction that stores this job's success.

        `body` is a plain function that runs after the handler has returned. If it
        raises, the attempt has failed.
        """
        if self._bodies is None:
            self._bodies = []
        self._bodies.append(body)

    @overload
    async def submit(
        self,
        capability: Typed[In, Out],
        value: In,
        **options: Unpack[SubmitOptions],
    ) -> Ticket[Out]: ...

    @overload
    async def submit(
        self, capability: str, value: Any, **options: Unpack[SubmitOptions]
    ) -> Ticket[Any]: ...

    async def submit(
        self, capability: Any, value: Any, **options: Unpack[SubmitOptions]
    ) -> Any:
        """Submit another job, durable when this returns; takes the usual options."""
        await self.flush()
        chosen: SubmitOptions = {**inherited(self._claim), **options}
        return await self._services.submit(capability, value, **chosen)

    @property
    def blobs(self) -> JobBlobs:
        """
        Blobs of this job: `await ctx.blobs.put(bytes)` returns an id for `get`.

        They are kept as long as the job. Large inputs and outputs are stored this way
        automatically.
        """
        if self._blobs is None:
            self._blobs = JobBlobs(self._claim, self._services.payloads)
        return self._blobs

    @property
    def app_blobs(self) -> AppBlobs:
        """
        Blobs of the job's application that belong to the job's owner.

        They outlive the job, and are written and read as streams. A repeated run writes
        them again: give a blob a time to live, or delete it.
        """
        if self._services.payloads.of_app is None:
            raise PermanentError("blobs of applications are not available here")
        return self._services.payloads.of_app(self._claim)

    @property
    def flow(self) -> Flow:
        """
        The flow of this job, for adding steps: `ctx.flow.add(…)`.

        Added steps are stored together with this step's success and start after it.
        Steps with `after=[ctx.anyway]` are also stored if this step fails permanently.
        `before=["join"]` makes a step that waits for this one wait for the new steps
        too.
        """
        if self._claim.flow is None:
            raise PermanentError("this job is not a step of a flow")
        if self._flow is None:
            self._flow = Flow(prefix=f"{self._claim.step}/")
        return self._flow

    @property
    def anyway(self) -> Edge:
        """Return this step as one that may fail: `ctx.flow.add(…, after=[…])`."""
        return Edge(self._claim.step or "", continues=True)

    @property
    def added_steps(self) -> tuple[Planned, ...]:
        """The steps added to the flow, in order."""
        return () if self._flow is None else tuple(self._flow.steps)

    @property
    def brought(
        self,
    ) -> tuple[Sequence[Callable[[Transaction], None]], Sequence[Planned]]:
        """What is written when the job succeeds: `settlement_bodies`, `added_steps`."""
        if self._bodies is None and self._flow is None:
            return (), ()
        return self.settlement_bodies, self.added_steps

    @property
    def settlement_bodies(self) -> tuple[Callable[[Transaction], None], ...]:
        """The bodies passed to `at_settlement`, in order."""
        return tuple(self._bodies or ())
