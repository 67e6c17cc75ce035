"""The operations of a store that are the same on both databases."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.auth.key import ApiKey
from backburner.domain.events.event import Event
from backburner.domain.jobs.job import Claim, Instant, Job, JobState, Visibility
from backburner.domain.queues.queue import Queue, Throttling, Totals
from backburner.domain.queues.schedule import ScheduleState
from backburner.ports.store.jobs import Amendment
from backburner.ports.store.keys import AuditEntry
from backburner.ports.store.maintenance import FailureGroup, JobFilter
from backburner.ports.store.schedules import Firing
from backburner.ports.store.transactions import Tx
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.shared import (
    amendments,
    dead_letters,
    depths,
    keys,
    listing,
    queue_policies,
    roster,
    timetable,
    totals,
)
from backburner.stores.shared.account_samples import AccountSamples
from backburner.stores.shared.activity import Activities
from backburner.stores.shared.app_blobs import AppBlobRows
from backburner.stores.shared.budgets import Budgeted
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.costs import Costs
from backburner.stores.shared.dead_letter_exports import DeadLetterExports
from backburner.stores.shared.endpoints import Endpoints
from backburner.stores.shared.erasure import Erasing
from backburner.stores.shared.event_streams import Streams
from backburner.stores.shared.grouped import Grouped
from backburner.stores.shared.lanes import Lanes
from backburner.stores.shared.prospects import Prospects
from backburner.stores.shared.rows import as_events
from backburner.stores.shared.statements import CommonQueries
from backburner.stores.shared.steps import Steps
from backburner.stores.shared.translations import Translations
from backburner.stores.shared.usages import Usages
from backburner.stores.shared.waits import Waits

T = TypeVar("T")


class BaseStore(
    Grouped,
    Streams,
    Endpoints,
    Activities,
    Costs,
    Usages,
    Budgeted,
    AccountSamples,
    Prospects,
    Lanes,
    DeadLetterExports,
    AppBlobRows,
    Erasing,
    Translations,
    Steps,
    Waits,
    Protocol,
):
    """The operations that a store inherits; it provides reads and transactions."""

    queries: CommonQueries

    async def _rows(self, statement: str, *parameters: Any) -> list[Any]:
        """Return the rows that one statement reads."""
        ...

    async def internal_transaction(self, body: Callable[[InternalTx], T]) -> T:
        """Run a body in its own durable transaction."""
        ...

    async def transact(
        self,
        body: Callable[[Tx], T],
        *,
        claim: Claim | None = None,
        seconds: float | None = None,
    ) -> T:
        """Run a body in one transaction, with a time limit and a claim, if any."""
        ...

    async def snapshot(self, body: Callable[[sa.Connection], T]) -> T:
        """Read within one snapshot of the data."""
        ...

    async def read_clock(self) -> Instant:
        """Return the store's time."""
        ...

    async def _read_jobs(
        self, where: JobFilter, read: Callable[[sa.Connection], T]
    ) -> T:
        """
        Read jobs; each of several states is read on its own.

        A job that goes from one of them to another meanwhile must be found once.
        """
        if len(where.states) > 1:
            return await self.snapshot(read)
        return await self.read(read)

    async def find(self, ids: Sequence[str]) -> Sequence[Job]:
        return await self.read(lambda c: listing.find(c, ids))

    async def amend(
        self, job: Job, amendment: Amendment, entries: Sequence[AuditEntry] = ()
    ) -> bool:
        body = amendments.amend(job, amendment)
        return await self.internal_transaction(keys.recorded(body, entries))

    async def declare(self, queues: Sequence[Queue]) -> None:
        await self.transact(queue_policies.declare(queues))

    async def pause(self, queue: str, *, paused: bool) -> None:
        await self.transact(queue_policies.pause(queue, paused=paused))

    async def totals(self) -> Mapping[str, Totals]:
        return await self.read(totals.read)

    async def compact_totals(self, *, limit: int) -> int:
        return await self.transact(totals.compact(limit))

    async def throttlings(self) -> Sequence[Throttling]:
        return await self.transact(queue_policies.tell(await self.read_clock()))

    async def plan(self, schedules: Sequence[ScheduleState]) -> None:
        await self.transact(timetable.declare(schedules))

    async def schedules(self) -> tuple[Instant, Sequence[ScheduleState]]:
        states = await self.read(timetable.listing)
        # After that: a tick that another process fires in between would be ahead of it.
        return await self.read_clock(), states

    async def save_schedule(
        self, schedule: ScheduleState, entries: Sequence[AuditEntry] = ()
    ) -> bool:
        body = timetable.save(schedule)
        return await self.transact(keys.recorded(body, entries))

    async def delete_schedule(self, name: str) -> bool:
        return await self.transact(timetable.delete(name))

    async def pause_schedule(
        self, name: str, *, paused: bool, next_at: Instant
    ) -> bool:
        return await self.transact(timetable.pause(name, paused, next_at))

    async def fire(self, firing: Firing) -> bool:
        return await self.internal_transaction(timetable.fire(firing))

    async def drain(self, worker: str, *, draining: bool) -> bool:
        return await self.transact(roster.drain(worker, draining=draining))

    async def is_draining(self, worker: str) -> bool | None:
        return await self.read(lambda c: roster.is_draining(c, worker))

    async def workers(self) -> Sequence[WorkerInfo]:
        return await self.read(roster.workers)

    async def history(self, job_id: str, *, after: int, limit: int) -> Sequence[Event]:
        rows = await self._rows(self.queries.list_history, job_id, after, limit)
        return as_events(rows)

    async def changes(
        self, job_id: str, *, after: int = 0, limit: int
    ) -> Sequence[Event]:
        rows = await self._rows(self.queries.list_changes, job_id, after, limit)
        return as_events(rows)

    async def jobs(
        self, where: JobFilter, *, before: int | None, limit: int
    ) -> Sequence[Job]:
        return await self._read_jobs(
            where, lambda c: listing.jobs(c, where, before, limit)
        )

    async def walk(
        self, where: JobFilter, *, before: int | None, limit: int, reach: int
    ) -> tuple[Sequence[Job], int | None]:
        return await self._read_jobs(
            where, lambda c: listing.walk(c, where, before, limit, reach)
        )

    async def count_within(
        self, where: JobFilter, *, most: int, reach: int
    ) -> tuple[int, bool]:
        return await self._read_jobs(
            where, lambda c: listing.count_within(c, where, most, reach)
        )

    async def count(self, where: JobFilter, *, most: int | None = None) -> int:
        return await self._read_jobs(where, lambda c: listing.count(c, where, most))

    async def failures(
        self, owner: Visibility, *, limit: int
    ) -> Sequence[FailureGroup]:
        return await self.read(lambda c: dead_letters.failures(c, owner, limit))

    async def depths(self) -> Sequence[tuple[str, JobState, int, Instant | None]]:
        return await self.read(depths.depths)

    async def waiting(self, cap: int) -> Mapping[str, int]:
        return await self.read(lambda c: depths.waiting(c, cap))

    async def dead_letters(self) -> int:
        return await self.read(dead_letters.dead_letters)

    async def overdue(self, *, now: Instant, limit: int) -> Sequence[Job]:
        return await self.read(lambda c: listing.overdue(c, now, limit))

    async def add_key(self, key: ApiKey, entry: AuditEntry) -> None:
        await self.transact(lambda tx: keys.add(tx.connection, key, entry))

    async def find_key(self, key_id: str) -> ApiKey | None:
        return await self.read(lambda c: keys.find(c, key_id))

    async def list_keys(self, tenant: str | None = None) -> Sequence[ApiKey]:
        return await self.read(lambda c: keys.listed(c, tenant))

    async def revoke_key(self, key_id: str, entry: AuditEntry) -> bool:
        return await self.transact(lambda tx: keys.revoke(tx.connection, key_id, entry))

    async def touch_key(
        self, key_id: str, *, now: Instant, unless_since: Instant
    ) -> None:
        await self.transact(
            lambda tx: keys.touch(tx.connection, key_id, now, unless_since)
        )

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        await self.transact(lambda tx: keys.record(tx.connection, entries))

    async def audited(
        self, tenant: str, *, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        return await self.read(lambda c: keys.audited(c, tenant, before, limit))
