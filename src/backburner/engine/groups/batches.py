"""Opens batches, adds members, counts them and ends batches."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from backburner.domain.errors import (
    BatchNotFound,
    BudgetExhausted,
    InvalidInput,
    StoreUnavailable,
    UnknownCapability,
    within,
)
from backburner.domain.events.event import Event
from backburner.domain.groups.batch import (
    PROGRESS_MS,
    Batch,
    BatchState,
    Counts,
    Members,
    NewBatch,
    replaced,
)
from backburner.domain.groups.flow import NewFlow
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Instant, NewJob, Owner, Submitted, Visibility
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.flow import Flow
from backburner.engine.groups.planning import Planning
from backburner.engine.groups.retrying import retry_failed
from backburner.engine.loop import Loop
from backburner.engine.observability import telemetry
from backburner.engine.submit.auditing import audited
from backburner.engine.submit.budgets import counted
from backburner.engine.submit.submission import LOCAL, GroupOptions, Options, Submission
from backburner.engine.watch import Watch
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.store import Store
from backburner.ports.store.events import Topic
from backburner.ports.store.flows import GroupFilter
from backburner.ports.store.keys import AuditEntry

QUIET_SECONDS: Final = 0.01
"""Ends in quick succession are handled by one check, after this pause …"""
MOST_QUIETS: Final = 5
"""… or after this many pauses."""
NET_SECONDS: Final = 5.0
"""How often batches are checked whose end was not notified."""
PAGE: Final = 500


class Batches:
    """Any number of jobs and flows under one id."""

    def __init__(  # noqa: PLR0913 - one argument per collaborator
        self,
        *,
        store: Store,
        notifier: Notifier,
        clock: Clock,
        faults: Faults,
        submission: Submission,
        watch: Watch,
        payloads: Payloads,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._clock = clock
        self._faults = faults
        self._submission = submission
        self._planning = Planning(submission)
        self._watch = watch
        self._payloads = payloads
        self._touched: dict[int, None] = {}
        self._touches = 0
        self._told: dict[int, Instant] = {}
        """When this process last reported the progress of each batch."""
        self._seen = 0
        """The last batch that was checked for its end."""
        self._loop = Loop("batches", self.look, every=NET_SECONDS)

    def start(self) -> None:
        """Start the loop that ends batches and publishes their progress."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop the loop."""
        await self._loop.stop()

    async def open(
        self,
        options: GroupOptions,
        members: Members,
        *,
        expected: int | None = None,
        completion: Mapping[str, Any] | None = None,
        sealed: bool | None = None,
    ) -> Submitted:
        """
        Store a batch and its first members.

        Members can be added until it is sealed.
        """
        batch = self.prepare(
            options, members, expected=expected, completion=completion, sealed=sealed
        )
        return await self.store(batch, members)

    def prepare(
        self,
        options: GroupOptions,
        members: Members,
        *,
        expected: int | None = None,
        completion: Mapping[str, Any] | None = None,
        sealed: bool | None = None,
        said: Any = None,
    ) -> NewBatch:
        """
        Validate a batch and prepare its row; nothing is stored yet.

        `said` is the request body, compared with earlier requests that have the same
        idempotency key.
        """
        is_full = expected is None or members.size >= expected
        return self._planning.batch(
            options,
            expected=expected,
            sealed=is_full if sealed is None else sealed,
            completion=completion,
            said=said or [expected, _named(completion), sealed, _said(members)],
        )

    async def store(
        self, batch: NewBatch, members: Members, entries: Sequence[AuditEntry] = ()
    ) -> Submitted:
        """
        Store a prepared batch with its first members.

        Unless it is a repeat, `entries` are added to the audit log with it.
        """
        stowed = await self._payloads.stow_members(members)
        async with self._payloads.dropped_if_refused(stowed):
            with counted():
                submitted = await self._open(batch, stowed, entries)
        if submitted.id != batch.id:
            await self._payloads.drop_inputs(stowed)
        self._notify(Members() if submitted.replayed else members)
        return submitted

    async def _open(
        self, batch: NewBatch, members: Members, entries: Sequence[AuditEntry]
    ) -> Submitted:
        if not entries:
            return await self._store.open_batch(batch, members)
        body = audited(lambda tx: [tx.open_batch(batch, members)], entries)
        return (await self._store.transact(body))[0]

    async def fill(
        self,
        batch_id: str,
        owner: Owner,
        members: Members,
        *,
        seal: bool = False,
        entries: Sequence[AuditEntry] = (),
    ) -> Sequence[Submitted]:
        """
        Add members to a batch; return the result of each, jobs before flows.

        Unless it is a repeat, `entries` are added to the audit log with it.
        """
        batch = await self.find(batch_id, owner)
        stowed = await self._payloads.stow_members(members)
        async with self._payloads.dropped_if_refused(stowed):
            with counted():
                submitted = await self._fill(batch, stowed, entries, seal=seal)
        await self._payloads.drop_inputs(replaced(stowed, submitted))
        self._notify(_new(members, submitted))
        self.touch([batch.seq])
        return submitted

    async def _fill(
        self,
        batch: Batch,
        members: Members,
        entries: Sequence[AuditEntry],
        *,
        seal: bool,
    ) -> Sequence[Submitted]:
        if not entries:
            return await self._store.fill_batch(batch.seq, members, seal=seal)
        body = audited(
            lambda tx: tx.fill_batch(batch.seq, members, seal=seal),
            entries,
            changes_more=seal and not batch.sealed,
        )
        return await self._store.transact(body)

    def members(
        self,
        jobs: Iterable[tuple[Any, Any, Options]] = (),
        flows: Iterable[tuple[Flow, GroupOptions]] = (),
        *,
        key: str | None = None,
    ) -> Members:
        """
        Validate members for a batch.

        With an idempotency key, each member is stored once, however often the request
        is repeated.
        """
        return Members(
            [self._job(n, *asked, key) for n, asked in enumerate(jobs)],
            [self._flow(n, *asked, key) for n, asked in enumerate(flows)],
        )

    def gather(
        self,
        jobs: Iterable[tuple[Any, Any]],
        flows: Iterable[Flow],
        options: GroupOptions,
        *,
        key: str | None = None,
    ) -> Members:
        """Validate members, with the owner and the request id of their batch."""
        shared = Options(
            owner=options.owner,
            request_id=options.request_id,
            traceparent=options.traceparent,
            key=options.key,
        )
        plain = replace(options, idempotency_key=None, callback=None, tags=())
        return self.members(
            [(asked, value, shared) for asked, value in jobs],
            [(flow, plain) for flow in flows],
            key=key,
        )

    def _job(
        self, n: int, asked: Any, value: Any, options: Options, key: str | None
    ) -> NewJob:
        if key is not None:
            options = replace(options, idempotency_key=_member_key(key, f"jobs.{n}"))
        with _part(f"jobs.{n}"):
            return self._submission.prepare(asked, value, options)

    def _flow(
        self, n: int, flow: Flow, options: GroupOptions, key: str | None
    ) -> NewFlow:
        if key is not None:
            options = replace(options, idempotency_key=_member_key(key, f"flows.{n}"))
        with _part(f"flows.{n}"):
            return self._planning.flow(flow, options)

    async def find(self, batch_id: str, owner: Visibility = LOCAL) -> Batch:
        """Return an owner's batch."""
        found = await self._store.find_batches([batch_id])
        if not found or not owner.covers(found[0].owner):
            raise BatchNotFound(f"batch {batch_id[:60]!r} does not exist")
        return found[0]

    async def counts(self, batch: Batch) -> dict[str, Any]:
        """Count a batch's members by state; for a finished batch, as of its end."""
        if batch.counts is not None:
            counts: dict[str, Any] = orjson.loads(batch.counts)
            return counts
        return (await self._store.count_batch(batch.seq)).told()

    async def list(
        self, where: GroupFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[Batch]:
        """Return a page of batches, newest first."""
        return await self._store.batches(where, before=before, limit=limit)

    async def cancel(
        self,
        batch_id: str,
        owner: Visibility = LOCAL,
        *,
        reason: str = "batch cancelled",
    ) -> Batch:
        """Cancel every member of a batch that has not ended."""
        batch = await self.find(batch_id, owner)
        change = transitions.cancel_all(reason, now=self._clock.now())
        await self._store.cancel_batch(batch.seq, change)
        self._notifier.notify(
            Notification.WORK | Notification.EVENTS | Notification.CANCELLED
        )
        self.touch([batch.seq])
        return await self.find(batch_id, owner)

    async def retry(
        self,
        batch_id: str,
        owner: Visibility = LOCAL,
        entries: Sequence[AuditEntry] = (),
    ) -> int:
        """
        Retry every failed member and step; the batch runs until they have ended.

        `entries` are added to the audit log with the first of them.
        """
        batch = await self.find(batch_id, owner)
        retried = await retry_failed(
            self._store, now=self._clock.now(), batch=batch.seq, entries=entries
        )
        telemetry.redrive_jobs.inc(retried)
        self._notifier.notify(Notification.WORK | Notification.EVENTS)
        return retried

    def events(self, batch: Batch, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield a batch's events above `after`, past and future, until it ends."""
        topic, over = Topic(batch=batch.seq), partial(self.last, batch)
        return self._watch.group(batch.owner, topic, over, after=after)

    async def last(self, batch: Batch) -> int | None:
        """Return the number of a batch's last event; `None` while it runs."""
        found = await self._store.find_batches([batch.id])
        if found and found[0].state is BatchState.OPEN:
            return None
        last = await self._store.last_of(Topic(batch=batch.seq))
        # If it was reopened in between, that was its last event for now.
        return last if found == await self._store.find_batches([batch.id]) else None

    async def wait(
        self,
        batch_id: str,
        owner: Visibility = LOCAL,
        *,
        timeout: float,  # noqa: ASYNC109 - part of the answer
    ) -> Batch:
        """Return a batch once it is finished, or as it is after the timeout."""
        batch = await self.find(batch_id, owner)
        if batch.state is BatchState.FINISHED or timeout <= 0:
            return batch
        await self._watch.end(batch.id, seconds=timeout)
        return await self.find(batch_id, owner)

    def look_soon(self) -> None:
        """Run the loop soon, because a batch was opened."""
        self._loop.poke()

    def touch(self, batches: Iterable[int]) -> None:
        """Check these batches soon, because a member of each has ended."""
        for batch in batches:
            self._touched[batch] = None
            self._touches += 1
            self._loop.poke()

    async def look(self) -> float | None:
        """End finished batches; publish the progress of the others that changed."""
        over = await self._store.batches_over(after=self._seen, limit=PAGE)
        # Batches that cannot end yet must not block the others.
        self._seen = over[-1] if len(over) == PAGE else 0
        for batch in over:
            self._touched.pop(batch, None)
            await self._finish(batch)
        now = self._clock.now()
        # Old reports delay nothing; another process may have ended the batch.
        self._told = {b: at for b, at in self._told.items() if now - at < PROGRESS_MS}
        due = [b for b in self._touched if now - self._told.get(b, 0) >= PROGRESS_MS]
        for batch in due:
            del self._touched[batch]
            self._told[batch] = now
            if await self._store.tell_batch(batch, now=now):
                self._notifier.notify(Notification.EVENTS)
        await self._calm_down()
        if len(over) == PAGE:
            return 0.0
        return PROGRESS_MS / 1000 if self._touched else None

    async def _calm_down(self) -> None:
        for _ in range(MOST_QUIETS):
            heard = self._touches
            await asyncio.sleep(QUIET_SECONDS)  # noqa: TID251 - see watch
            if heard == self._touches:
                return

    async def _finish(self, batch: int) -> None:
        now = self._clock.now()
        self._told.pop(batch, None)
        self._faults.hit("batch.finishing")
        try:
            with counted():
                finished = await self._store.finish_batch(
                    batch, self._completion, now=now
                )
        except BudgetExhausted:
            # Its completion job exceeds a budget: it is checked again.
            log.warning("batch waits for a budget")
            return
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the others can end
            log.error("batch not ended", error_type=type(error).__name__)
            return
        self._faults.hit("batch.finished")
        if finished:
            self._notifier.notify(
                Notification.WORK | Notification.EVENTS | Notification.ENDED
            )

    def _completion(self, batch: Batch, counts: Counts) -> Sequence[NewJob]:
        """Prepare the completion job of a batch; its default input is the counts."""
        if batch.completion is None:
            return ()
        asked = orjson.loads(batch.completion)
        default = {"id": batch.id, "generation": batch.generation, **counts.told()}
        now = self._clock.now()
        job = NewJob(
            id=self._submission.draw("job", now),
            owner=batch.owner,
            capability=asked["capability"],
            queue=asked["queue"],
            input=orjson.dumps(asked.get("input", default)).decode(),
            created_at=now,
            max_attempts=asked["max_attempts"],
            tags=(f"batch:{batch.id}",),
            request_id=batch.request_id,
            traceparent=batch.traceparent,
        )
        return [self._payloads.stow_input(job)]

    def _notify(self, members: Members) -> None:
        for job in members.jobs:
            telemetry.jobs_submitted.labels(job.capability).inc()
        for flow in members.flows:
            for step in flow.steps:
                telemetry.jobs_submitted.labels(step.job.capability).inc()
        self._notifier.notify(
            Notification.WORK | Notification.SCHEDULE | Notification.EVENTS
        )
        self._loop.poke()


@contextmanager
def _part(path: str) -> Iterator[None]:
    """Name the part of the request in errors that are raised inside."""
    try:
        yield
    except (InvalidInput, UnknownCapability) as error:
        raise within(path, error) from None


def _new(members: Members, submitted: Sequence[Submitted]) -> Members:
    """Return the members that are new; `answers` has jobs first, then flows."""
    pairs = zip((*members.jobs, *members.flows), submitted, strict=True)
    new = [member for member, answer in pairs if not answer.replayed]
    return Members(
        [member for member in new if isinstance(member, NewJob)],
        [member for member in new if isinstance(member, NewFlow)],
    )


def _member_key(key: str, path: str) -> str:
    """Return an idempotency key for a member, unique to the batch request."""
    return hashlib.sha256(f"{path} {key}".encode()).hexdigest()


def _named(completion: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a completion with its capability's name instead of the capability."""
    if completion is None:
        return None
    asked = completion.get("capability")
    return {**completion, "capability": getattr(asked, "name", asked)}


def _said(members: Members) -> Any:
    jobs = [_said_job(job) for job in members.jobs]
    flows = [
        [
            [*_said_job(step.job), step.job.step, [[*edge] for edge in step.needs]]
            for step in flow.steps
        ]
        for flow in members.flows
    ]
    return [jobs, flows]


def _said_job(job: NewJob) -> list[Any]:
    # Without the start time: a delay is counted from each request.
    body = [
        job.capability,
        job.input,
        job.queue,
        job.priority,
        job.start_by,
        job.deadline,
        [*job.tags],
        job.max_attempts,
        job.callback,
    ]
    # Add it only if given, so that repeats of older requests still match.
    return [*body, dict(job.metadata)] if job.metadata else body
