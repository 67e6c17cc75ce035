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
    """What one attempt can use. Nothing here outlives the attempt."""

    __slots__ = ()

    def settings_of(self, model: type[S]) -> S:
        """Return an application's settings: `ctx.settings_of(SongsSettings).limit`."""
        return self._services.app_settings.of(model)

    async def deliver(self, url: str, body: bytes, *, topic: str) -> None:
        """
        Post a signed body to an address that a caller gave; return if it is accepted.

        It has this job's id at every attempt, and its request's id. What goes wrong
        is raised as what it means: worth another attempt, later, or never.
        """
        if self._services.callback_sender is None:
            raise TransientError("this process does not deliver webhooks")
        await self.flush()
        await self._services.callback_sender.send(self._claim, url, body, topic)

    @property
    def http(self) -> Http:
        """
        Other servers over HTTP: `await ctx.http.get(url)`, `await ctx.http.post(url)`.

        Only public addresses are reached, and what the operator adds. Answers are
        bounded in size and time; what goes wrong is raised as what it means: worth
        another attempt, later, or never.
        """
        if self._services.http is None:
            raise TransientError("this process does not send requests")
        return self._services.http()

    async def read(
        self, body: Callable[Concatenate[View, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """
        Run a plain function over what is committed now; it cannot write.

        It gets the database as it is at one instant, and what else is given.
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

        It gets the transaction, and what else is given. It is committed only if this
        worker still holds the job; otherwise `ClaimLost` is raised and the attempt is
        over. A body that takes longer than
        `BACKBURNER_TRANSACTION_SECONDS` is rolled back: `TransactionTooLong`. If the
        job runs again, as after a lost worker, it may commit again: write so that a
        repeat changes nothing, or use `at_settlement`.
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
        Return jobs of a queue whose run takes longer than it should, whoever's.

        Of the newest 1,000 that run; for an application that reports on its queues.
        """
        least = longer_than // timedelta(milliseconds=1)
        found = await self._database().running(queue)
        return [job for job in found if job.duration_ms > least]

    def _database(self) -> Storage:
        if self._services.engine is None:
            raise PermanentError("no database is available here")
        return self._services.engine

    def at_settlement(self, body: Callable[[Transaction], None]) -> None:
        """
        Write to the database together with this job's success, or not at all.

        `body` is a plain function; it runs in the transaction that settles the job,
        after the handler returned. If it raises, the attempt has failed.
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
        """Submit another job, durable when this returns; takes what `submit` takes."""
        await self.flush()
        chosen: SubmitOptions = {**inherited(self._claim), **options}
        return await self._services.submit(capability, value, **chosen)

    @property
    def blobs(self) -> JobBlobs:
        """
        Contents of this job: `await ctx.blobs.put(bytes)` gives an id to `get` by.

        They are kept for as long as the job is. Large inputs and outputs go that way
        by themselves.
        """
        if self._blobs is None:
            self._blobs = JobBlobs(self._claim, self._services.payloads)
        return self._blobs

    @property
    def app_blobs(self) -> AppBlobs:
        """
        What the application of this job keeps for the job's owner.

        These blobs outlive the job, and are written and read as streams. A run that
        is repeated writes again: give the blob a time to live, or delete it.
        """
        if self._services.payloads.of_app is None:
            raise PermanentError("blobs of applications are not available here")
        return self._services.payloads.of_app(self._claim)

    @property
    def flow(self) -> Flow:
        """
        The flow that this job is a step of, to add steps to: `ctx.flow.add(…)`.

        They are stored together with this step's success, or not at all, and begin
        after it; those `after=[ctx.anyway]` are stored also if it fails for good.
        `before=["join"]` has a step wait for them that waits for this one.
        """
        if self._claim.flow is None:
            raise PermanentError("this job is not a step of a flow")
        if self._flow is None:
            self._flow = Flow(prefix=f"{self._claim.step}/")
        return self._flow

    @property
    def anyway(self) -> Edge:
        """The step as one that need not succeed: `ctx.flow.add(…, after=[…])`."""
        return Edge(self._claim.step or "", continues=True)

    @property
    def added_steps(self) -> tuple[Planned, ...]:
        """What was added to the flow, in order."""
        return () if self._flow is None else tuple(self._flow.steps)

    @property
    def brought(
        self,
    ) -> tuple[Sequence[Callable[[Transaction], None]], Sequence[Planned]]:
        """What is written with its success: `settlement_bodies`, `added_steps`."""
        if self._bodies is None and self._flow is None:
            return (), ()
        return self.settlement_bodies, self.added_steps

    @property
    def settlement_bodies(self) -> tuple[Callable[[Transaction], None], ...]:
        """What `at_settlement` was given, in order."""
        return tuple(self._bodies or ())
