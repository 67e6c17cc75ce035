"""The operations of the engine; decisions are in the domain."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import EllipsisType
from typing import Any, TypeVar

import orjson

from backburner.domain.costs.usage import RunUsage
from backburner.domain.errors import (
    IllegalTransition,
    JobNotFound,
    StoreUnavailable,
    WorkerNotFound,
)
from backburner.domain.events.event import STARTED, AttemptRecord, Event, attempts
from backburner.domain.events.text import Draft, Text
from backburner.domain.groups.batch import Members, replaced
from backburner.domain.groups.flow import NewStep
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import (
    Claim,
    Instant,
    Job,
    JobState,
    NewJob,
    Submitted,
    Visibility,
)
from backburner.domain.jobs.step import StepResult, StoredStep
from backburner.domain.jobs.transitions import Change
from backburner.domain.jobs.wait import NewWait, Question, StoredWait, WaitRecord
from backburner.engine.blobs.app_blobs import BlobService
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.broker.relay import Relay
from backburner.engine.flow import Planned
from backburner.engine.groups.batches import Batches
from backburner.engine.groups.flows import Flows
from backburner.engine.groups.retrying import (
    Retries,
    can_be_retried,
    retry_affordable,
    retry_moves,
)
from backburner.engine.history import changes
from backburner.engine.maintenance.scheduler import Scheduler
from backburner.engine.observability import telemetry
from backburner.engine.observability.trace_context import active_traceparent
from backburner.engine.options import SubmitGroupOptions
from backburner.engine.preparing import Preparation
from backburner.engine.registry import Capability, Registry
from backburner.engine.run import signalling
from backburner.engine.run.services import Running, inherited
from backburner.engine.submit.auditing import audited
from backburner.engine.submit.budgets import Budgets, counted
from backburner.engine.submit.quoting import Quoting
from backburner.engine.submit.submission import (
    LOCAL,
    Options,
    Submission,
    refused_field,
)
from backburner.engine.tail import SharedPage
from backburner.engine.transaction import Transaction, View
from backburner.engine.watch import Watch
from backburner.engine.webhooks.endpoints import Endpoints
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults, NoFaults
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.prices import NoPrices, Prices
from backburner.ports.store import Store
from backburner.ports.store.events import EVERYTHING, Topic
from backburner.ports.store.jobs import Amendment, Move, Settlement
from backburner.ports.store.keys import AuditEntry
from backburner.ports.store.maintenance import FailureGroup, JobFilter
from backburner.ports.store.transactions import Tx

T = TypeVar("T")

TRIES = 10
"""How often a decision is repeated because the job changed meanwhile."""
TRANSACTION_SECONDS = 5.0
"""How long a transaction body may take."""
MOST_RUNNING = 1_000
PAGE = 1_000
"""How many events are read at once."""
HISTORY = 10_000
"""The maximum number of a job's events from which its attempts are computed."""


class Engine:
    """The operations on jobs, such as submit, find, cancel, retry and follow."""

    def __init__(  # noqa: PLR0913 - one argument per collaborator
        self,
        *,
        store: Store,
        notifier: Notifier,
        clock: Clock,
        registry: Registry,
        submission: Submission,
        watch: Watch,
        payloads: Payloads | None = None,
        faults: Faults | None = None,
        webhook_key: bytes = b"",
        prices: Prices | None = None,
        relay: Relay | None = None,
        transaction_seconds: float = TRANSACTION_SECONDS,
    ) -> None:
        self.store = store
        self.registry = registry
        self.payloads = payloads or Payloads()
        self.blobs: BlobService | None = None
        """The blobs of applications; `None` if no blob store is configured."""
        self._notifier = notifier
        self._clock = clock
        self._faults = faults or NoFaults()
        self._submission = submission
        self._watch = watch
        self._relay = relay
        self._transaction_seconds = transaction_seconds
        self.scheduler: Scheduler | None = None
        """Fires schedules; `None` if this process does not."""
        self.batches = Batches(
            store=store,
            notifier=notifier,
            clock=clock,
            faults=self._faults,
            submission=submission,
            watch=watch,
            payloads=self.payloads,
        )
        self.flows = Flows(
            store=store,
            notifier=notifier,
            clock=clock,
            submission=submission,
            watch=watch,
            payloads=self.payloads,
            touch=self.batches.touch,
        )

        self._preparing = Preparation(
            submission, self.flows, self.batches, self.payloads
        )
        self.budgets = Budgets(store=store, clock=clock, submission=submission)
        self.quoting = Quoting(store=store, clock=clock, prices=prices or NoPrices())
        self.endpoints = Endpoints(
            store=store, clock=clock, submission=submission, master=webhook_key
        )

    def now(self) -> Instant:
        """Return the engine's current time."""
        return self._clock.now()

    @property
    def is_degraded(self) -> bool:
        """Whether the broker is unavailable, so that workers only poll."""
        return self._relay is not None and not self._relay.is_up

    def draw(self, kind: str) -> str:
        """Return a new id."""
        return self._submission.draw(kind, self.now())

    async def submit(
        self, capability: Capability[Any, Any] | str, value: Any, options: Options
    ) -> Submitted:
        """Store a job. When this returns, it is durable."""
        return (await self.store_jobs([self.prepare(capability, value, options)]))[0]

    async def submit_many(
        self,
        requests: Sequence[tuple[Capability[Any, Any] | str, Any, Options]],
    ) -> Sequence[Submitted]:
        """Store many jobs, all or none."""
        return await self.store_jobs([self.prepare(*request) for request in requests])

    def prepare(
        self, capability: Capability[Any, Any] | str, value: Any, options: Options
    ) -> NewJob:
        """Validate a request and prepare its job; nothing is stored yet."""
        return self._submission.prepare(capability, value, options)

    async def store_jobs(
        self, jobs: Sequence[NewJob], entries: Sequence[AuditEntry] = ()
    ) -> Sequence[Submitted]:
        """
        Store prepared jobs and notify workers.

        Unless all of them are repeats, `entries` are added to the audit log with them.
        """
        stowed = await self.payloads.stow_inputs(jobs)
        async with self.payloads.dropped_if_refused(Members(stowed)):
            with counted():
                submitted = await self._store(stowed, entries)
        notifications = Notification.EVENTS
        for job, answer in zip(jobs, submitted, strict=True):
            if answer.replayed:
                continue
            is_queued = answer.state == JobState.QUEUED
            notifications |= Notification.WORK if is_queued else Notification.SCHEDULE
            telemetry.jobs_submitted.labels(job.capability).inc()
        self._tell(_queued(jobs, submitted), notifications)
        if stowed is not jobs:
            await self.payloads.drop_inputs(replaced(Members(stowed), submitted))
        return submitted

    async def _store(
        self, jobs: Sequence[NewJob], entries: Sequence[AuditEntry]
    ) -> Sequence[Submitted]:
        if not entries:
            return await self.store.submit(jobs)
        return await self.store.transact(audited(lambda tx: tx.submit(jobs), entries))

    async def transact(
        self, body: Callable[[Transaction], T], *, claim: Claim | None = None
    ) -> T:
        """
        Run a function in one transaction, including the jobs that it submits.

        With a `claim`, it commits only if the claim is still valid, and the jobs that
        it submits have the owner and the request id of the claimed job.
        """
        wrapped: list[Transaction] = []
        active = active_traceparent()  # a body may run in another thread

        def run(tx: Tx) -> T:
            wrapped[:] = [self.wrap(tx, claim, traceparent=active)]
            return body(wrapped[0])

        with counted():
            result = await self.store.transact(
                run, claim=claim, seconds=self._transaction_seconds
            )
        if wrapped[0].has_submitted:
            self._notifier.notify(
                Notification.WORK | Notification.SCHEDULE | Notification.EVENTS
            )
            self.batches.look_soon()
        elif wrapped[0].has_published:
            self._notifier.notify(Notification.EVENTS)
        self.batches.touch(wrapped[0].filled)
        return result

    async def read(self, body: Callable[[View], T]) -> T:
        """Run a function that reads committed data; it cannot write."""
        return await self.store.snapshot(lambda connection: body(View(connection)))

    async def running(self, queue: str) -> Sequence[Running]:
        """Return up to 1,000 running jobs of a queue, of all owners, newest first."""
        where = JobFilter(state=JobState.RUNNING, queue=queue)
        now = self._clock.now()
        return [
            Running(job.id, now - (job.started_at or now))
            for job in await self.store.jobs(where, before=None, limit=MOST_RUNNING)
        ]

    def wrap(
        self, tx: Tx, parent: Claim | None = None, *, traceparent: str | None = None
    ) -> Transaction:
        """Return the transaction object that bodies receive."""
        default: SubmitGroupOptions = {"traceparent": traceparent}
        return Transaction(
            tx,
            self._preparing,
            default if parent is None else inherited(parent),
            now=self._clock.now,
        )

    def plan_steps(self, added: Sequence[Planned], claim: Claim) -> Sequence[NewStep]:
        """Validate steps that a handler added to its flow."""
        return self.flows.plan(added, claim)

    def touch_batches(self, batches: Iterable[int]) -> None:
        """Check these batches soon, because a member of each has ended."""
        self.batches.touch(batches)

    async def find(self, job_id: str, owner: Visibility = LOCAL) -> Job:
        """Return an owner's job."""
        found = await self.store.find([job_id])
        if not found or not owner.covers(found[0].owner):
            raise JobNotFound(f"job {job_id[:60]!r} does not exist")
        return found[0]

    async def draft(self, job_id: str, owner: Visibility = LOCAL) -> Draft:
        """Return the state of an owner's job and the text that it has streamed."""
        job, text, seen = await self.find(job_id, owner), Text(), 0
        while events := await self.store.history(job_id, after=seen, limit=PAGE):
            for event in events:
                text.take(event.n, event.type, event.data)
            seen = events[-1].n
        return Draft(job.state, str(text))

    async def save_steps(
        self, results: Sequence[StepResult], bookings: Sequence[RunUsage] = ()
    ) -> Sequence[bool]:
        """Store results of steps; see `StepStore`."""
        held = await self.store.save_steps(results, bookings)
        self._faults.hit("step.stored")
        return held

    async def steps_of(
        self, job: int, *, most: int | None = None
    ) -> Sequence[StoredStep]:
        """Return the stored results of a job's steps; see `StepStore`."""
        return await self.store.steps_of(job, most=most)

    async def known_run(self, job: Job) -> int | None:
        """Return the epoch of a job's current or successful run."""
        epoch, seen = None, 0
        if job.state not in {JobState.RUNNING, JobState.SUCCEEDED}:
            return None
        while events := await self.store.changes(job.id, after=seen, limit=PAGE):
            for event in events:
                if event.type == STARTED:
                    epoch = event.n
            seen = events[-1].n
        return epoch

    async def forget_step(self, job: int, token: str, key: str) -> bool:
        """Delete a step's result, if its job runs under the token."""
        return await self.store.forget_step(job, token, key)

    async def submit_fork(
        self,
        job: NewJob,
        results: Sequence[StepResult],
        event: str,
        entries: Sequence[AuditEntry] = (),
    ) -> Submitted:
        """Store a job with results of steps, and notify workers; see `StepStore`."""
        [stowed] = await self.payloads.stow_inputs([job])
        async with self.payloads.dropped_if_refused(Members([stowed])):
            with counted():
                submitted = await self.store.submit_fork(
                    stowed, results, event, entries
                )
        telemetry.jobs_submitted.labels(job.capability).inc()
        self._tell(_queued([job], [submitted]), Notification.EVENTS | Notification.WORK)
        return submitted

    async def withdraw_step(self, job: int, token: str, key: str) -> bool:
        """Record that a step that had begun did not happen."""
        return await self.store.withdraw_step(job, token, key)

    async def open_wait(
        self, job: int, token: str, generation: int, wait: NewWait
    ) -> StoredWait | None:
        """Store a wait of a running job; see `WaitStore`."""
        return await self.store.open_wait(job, token, generation, wait)

    async def waits_of(self, job: int, *, most: int) -> Sequence[WaitRecord]:
        """Return the waits and signals of a job; see `WaitStore`."""
        return await self.store.waits_of(job, most=most)

    async def find_wait(
        self, job: int, generation: int, name: str
    ) -> StoredWait | None:
        """Return a wait of a job; see `WaitStore`."""
        return await self.store.find_wait(job, generation, name)

    async def signal(
        self, job_id: str, name: str, value: Any, owner: Visibility = LOCAL
    ) -> bool:
        """
        Store a signal for a job; return whether it is new.

        A name has one value. Raises `SignalConflict` if another value is stored, if the
        wait has timed out or if the job has ended.
        """
        job = await self.find(job_id, owner)
        return await signalling.deliver(self, job, name, value)

    async def answer(
        self, job_id: str, name: str, value: Any, owner: Visibility = LOCAL
    ) -> bool:
        """Answer a question that a job asked a person; return whether it is new."""
        job = await self.find(job_id, owner)
        await self.question(job, name, value)
        return await signalling.deliver(self, job, name, value, is_answer=True)

    async def question(self, job: Job, name: str, value: Any) -> Question | None:
        """Return an open question of a job; raise if it does not take this answer."""
        asked = await self.store.find_question(job.seq, job.generation, name)
        signalling.check_answer(name, value, asked)
        return asked

    async def questions(
        self, owner: Visibility = LOCAL, *, before: int | None = None, limit: int = 50
    ) -> Sequence[Question]:
        """Return a page of open questions, newest first."""
        return await self.store.questions(owner, before=before, limit=limit)

    def woken(self, job: Job) -> None:
        """Notify workers that a job was queued."""
        self._tell({job.queue: 1}, Notification.WORK | Notification.EVENTS)

    async def jobs(
        self, where: JobFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[Job]:
        """Return a page of jobs, newest first."""
        return await self.store.jobs(where, before=before, limit=limit)

    async def failures(
        self, owner: Visibility = LOCAL, *, limit: int = 50
    ) -> Sequence[FailureGroup]:
        """Return an owner's dead letters, grouped by cause."""
        return await self.store.failures(owner, limit=limit)

    async def attempts(self, job: Job) -> list[AttemptRecord]:
        """Return a job's attempts; only the newest if there are very many."""
        newest: deque[Event] = deque(maxlen=HISTORY)
        async for event in changes(self.store, job.id):
            newest.append(event)
        return attempts(newest)

    async def cancel(
        self,
        job_id: str,
        owner: Visibility = LOCAL,
        *,
        reason: str = "cancelled on request",
    ) -> Job:
        """Cancel a job, also a running one; repeating it is no error."""
        for _ in range(TRIES):
            job = await self.find(job_id, owner)
            if job.state is JobState.CANCELLED:
                return job
            change = transitions.cancel(job, reason, now=self._clock.now())
            if await self._apply(job, change):
                self._notifier.notify(
                    Notification.WORK | Notification.EVENTS | Notification.CANCELLED
                )
                if job.batch is not None:
                    self.batches.touch([job.batch])
                telemetry.jobs_finished.labels(job.capability, change.to).inc()
                return await self.find(job_id, owner)
        raise StoreUnavailable(
            f"job {job_id} changed its state while it was being cancelled; try again"
        )

    async def change(
        self,
        job_id: str,
        owner: Visibility = LOCAL,
        *,
        priority: int | None = None,
        run_at: Instant | EllipsisType | None = ...,
        entries: Sequence[AuditEntry] = (),
    ) -> Job:
        """
        Change the priority or the start time of a job that has not started.

        `run_at=None` lets it start as soon as possible; without `run_at` its time
        stays. `entries` are added to the audit log if anything changes.
        """
        for _ in range(TRIES):
            job, change = await self.find(job_id, owner), None
            if priority is not None:
                transitions.check_reprioritised(job)
            if not isinstance(run_at, EllipsisType):
                _check_time(job, run_at)
                change = transitions.reschedule(job, run_at, now=self._clock.now())
            wanted = None if priority == job.priority else priority
            if wanted is None and change is None:
                return job
            if await self.store.amend(job, Amendment(wanted, change), entries):
                what = Notification.EVENTS | Notification.SCHEDULE
                is_queued = change is not None and change.to is JobState.QUEUED
                self._tell({job.queue: 1} if is_queued else {}, what | _work(is_queued))
                return await self.find(job_id, owner)
        raise StoreUnavailable(
            f"job {job_id} changed its state while it was being changed; try again"
        )

    async def cancel_jobs(
        self, jobs: Sequence[Job], *, reason: str = "cancelled on request"
    ) -> int:
        """Cancel jobs that have not ended; return how many were cancelled."""
        now = self._clock.now()
        moves = [
            Move(
                job.seq,
                job.state,
                job.generation,
                transitions.cancel(job, reason, now=now),
                job.consequences,
            )
            for job in jobs
            if job.state is not JobState.RUNNING and not job.state.is_final
        ]
        held = await self.store.move(moves) if moves else ()
        done = {move.seq for move, holds in zip(moves, held, strict=True) if holds}
        self.batches.touch(
            [job.batch for job in jobs if job.seq in done and job.batch is not None]
        )
        self._notifier.notify(Notification.WORK | Notification.EVENTS)
        changed = len(done)
        for job in jobs:
            if job.seq not in done and not job.state.is_final:
                # It is running, has changed meanwhile, or has ended: change it
                # separately or not at all.
                with suppress(IllegalTransition, JobNotFound):
                    await self.cancel(job.id, job.owner, reason=reason)
                    changed += 1
        return changed

    async def retry_jobs(self, jobs: Sequence[Job]) -> Retries:
        """
        Queue those of the jobs again that are still dead letters.

        Jobs that a budget refuses are left out; the others are queued all the same.
        """
        failed = [
            job for job in jobs if job.state is JobState.FAILED and can_be_retried(job)
        ]
        now = self._clock.now()
        with counted():
            done = await retry_affordable(self.store, failed, now=now)
        telemetry.redrive_jobs.inc(done.retried)
        self._notifier.notify(Notification.WORK | Notification.EVENTS)
        return done

    async def retry(
        self,
        job_id: str,
        owner: Visibility = LOCAL,
        *,
        fresh: bool = False,
        entries: Sequence[AuditEntry] = (),
    ) -> Job:
        """
        Queue a dead letter again, in its next generation.

        Its handler gets the stored results of its steps; `fresh` discards them. If the
        retry is refused, they stay. `entries` are added to the audit log with it.
        """
        job = await self.find(job_id, owner)
        if not can_be_retried(job):
            raise IllegalTransition("a bulk action cannot be retried: submit it again")
        moves = retry_moves([job], self._clock.now())
        with counted():
            moved = await self.store.reopen(moves, fresh=fresh, entries=entries)
        if not moved[0]:
            raise IllegalTransition(f"job {job_id} was retried by another request")
        telemetry.redrive_jobs.inc()
        self._tell({job.queue: 1}, Notification.WORK | Notification.EVENTS)
        return await self.find(job_id, owner)

    async def retry_all(
        self,
        where: JobFilter,
        *,
        limit: int,
        rate: float | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> int:
        """
        Queue matching dead letters again, at most `limit`, newest first.

        With a `rate`, that many per second start; the others wait as scheduled jobs.
        `entries` are added to the audit log if there are any.
        """
        able: list[Job] = []
        before: int | None = None
        while room := limit - len(able):
            page = await self.store.jobs(where, before=before, limit=room)
            able += [job for job in page if can_be_retried(job)]
            if len(page) < room:
                break
            before = page[-1].seq
        moves = retry_moves(able, self._clock.now(), rate)
        with counted():
            moved = await self.store.reopen(moves, entries=entries) if moves else ()
        retried = sum(moved)
        telemetry.redrive_jobs.inc(retried)
        self._notifier.notify(
            Notification.WORK | Notification.SCHEDULE | Notification.EVENTS
        )
        return retried

    async def pause(self, queue: str, entry: AuditEntry, *, paused: bool) -> None:
        """Pause or resume a queue; the audit log records who did it."""
        await self.store.record([entry])
        await self.store.pause(queue, paused=paused)
        self._notifier.notify(Notification.WORK)

    async def drain(self, worker: str, entry: AuditEntry, *, draining: bool) -> None:
        """Drain or resume a worker; the audit log records who did it."""
        if not any(found.id == worker for found in await self.store.workers()):
            raise WorkerNotFound("no live worker has this id")
        await self.store.record([entry])
        await self.store.drain(worker, draining=draining)
        # This notification makes workers check their own state, not only their jobs.
        self._notifier.notify(Notification.CANCELLED)

    def events(self, job: Job, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield a job's events after number `after`, past and future, until it ends."""
        return self._watch.job(job, after=after)

    def stream(
        self, owner: Visibility = LOCAL, *, after: int = 0, topic: Topic = EVERYTHING
    ) -> AsyncGenerator[Event, None]:
        """Yield an owner's events after the global cursor, without end."""
        return self._watch.stream(owner, after=after, topic=topic)

    def pages(
        self, owner: Visibility = LOCAL, *, after: int = 0, topic: Topic = EVERYTHING
    ) -> AsyncGenerator[SharedPage, None]:
        """Yield the same events page by page; readers of the same events share them."""
        return self._watch.pages(owner, after=after, topic=topic)

    async def wait(
        self,
        job_id: str,
        owner: Visibility = LOCAL,
        *,
        timeout: float,  # noqa: ASYNC109 - part of the answer
    ) -> Job:
        """Return the job once it has ended, or as it is after the timeout."""
        job = await self.find(job_id, owner)
        if job.state.is_final or timeout <= 0:
            return job
        try:
            async with asyncio.timeout(timeout):
                async for _ in self._watch.job(job, after=job.events):
                    pass
        except TimeoutError:
            pass
        return await self.find(job_id, owner)

    def _tell(self, counts: Mapping[str, int], notifications: Notification) -> None:
        if self._relay is None:
            self._notifier.notify(notifications)
        else:
            self._relay.tell(counts, notifications)

    async def _apply(self, job: Job, change: Change) -> bool:
        if job.state is JobState.RUNNING:
            settlement = Settlement(
                job.seq, job.token or "", change, consequences=job.consequences
            )
            return (await self.store.settle([settlement]))[0] is not None
        move = Move(job.seq, job.state, job.generation, change, job.consequences)
        return (await self.store.move([move]))[0]


def _check_time(job: Job, run_at: Instant | None) -> None:
    """Refuse a start at which a job has expired."""
    limits = [limit for limit in (job.start_by, job.deadline) if limit is not None]
    if run_at is not None and limits and run_at >= min(limits):
        raise refused_field("run_at", "is not before the job's start_by or deadline")


def _work(is_queued: bool) -> Notification:
    return Notification.WORK if is_queued else Notification(0)


def _queued(jobs: Sequence[NewJob], answers: Sequence[Submitted]) -> Mapping[str, int]:
    """Count the jobs that may start, by queue."""
    submitted = zip(jobs, answers, strict=True)
    return Counter(
        job.queue
        for job, answer in submitted
        if answer.state == JobState.QUEUED and not answer.replayed
    )


def as_value(text: str | None) -> Any:
    """Parse stored JSON."""
    return None if text is None else orjson.loads(text)
