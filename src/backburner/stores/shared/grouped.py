"""The operations of transactions, flows and batches, on both databases."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from backburner.domain.costs.budget import Reservation
from backburner.domain.events.publication import Publication
from backburner.domain.groups.batch import Batch, Counts, Members, NewBatch
from backburner.domain.groups.flow import FlowRecord, NewFlow, NewStep
from backburner.domain.groups.graph import OutlinedStep
from backburner.domain.jobs.job import Instant, NewJob, Submitted
from backburner.domain.jobs.transitions import Change
from backburner.ports.store.budgets import HoldRequest
from backburner.ports.store.events import Topic
from backburner.ports.store.flows import FlowStep, GroupFilter
from backburner.ports.store.jobs import Move
from backburner.ports.store.keys import AuditEntry
from backburner.stores.shared import batches as batching
from backburner.stores.shared import (
    budgets,
    flow_extension,
    keys,
    listing,
    publications,
    reopening,
    translations,
    waits,
)
from backburner.stores.shared import flows as flowing
from backburner.stores.shared.access import Access
from backburner.stores.shared.consequences import InternalTx

T = TypeVar("T")

SLICE = 1000
"""How many jobs of a batch are cancelled in one transaction."""


class FillTx(InternalTx, Protocol):
    """A transaction that can add members to batches."""

    def lock_batch(self, batch: int) -> None:
        """Lock a batch to add members."""
        ...


class SharedTx:
    """The operations of `Tx` that are the same on both databases."""

    def submit_flows(self: InternalTx, flows: Sequence[NewFlow]) -> Sequence[Submitted]:
        return flowing.submit(self, flows)

    def open_batch(self: InternalTx, batch: NewBatch, members: Members) -> Submitted:
        return batching.open_(batch, members)(self)

    def find_batch(self: InternalTx, batch_id: str) -> Batch | None:
        rows = batching.find(self.connection, [batch_id])
        return rows[0] if rows else None

    def fill_batch(
        self: FillTx, batch: int, members: Members, *, seal: bool
    ) -> Sequence[Submitted]:
        self.lock_batch(batch)
        return batching.fill(batch, members, seal=seal)(self)

    def has_signal(self: InternalTx, job: int, names: Sequence[str]) -> bool:
        return waits.has_signal(self.connection, job, names)

    def extend(self: InternalTx, flow: int, steps: Sequence[NewStep]) -> None:
        flow_extension.extend(self, flow, steps)

    def reserve_hold(self: InternalTx, ask: HoldRequest) -> Reservation:
        return budgets.reserve_hold(self, ask)

    def settle_hold(self: InternalTx, hold_id: str, tokens: int) -> bool:
        return budgets.settle_hold(self, hold_id, tokens)

    def release_hold(self: InternalTx, hold_id: str) -> bool:
        return budgets.release_hold(self, hold_id)

    def publish(self: InternalTx, events: Sequence[Publication]) -> None:
        publications.publish(self.connection, events)

    def record(self: InternalTx, entries: Sequence[AuditEntry]) -> None:
        keys.record(self.connection, entries)

    def advance(self: InternalTx, application: str, mark: int, upto: int) -> bool:
        return translations.advance(self.connection, application, mark, upto)


class Grouped(Access, Protocol):
    """The operations of `Flows` and `Batches`, on both databases."""

    async def internal_transaction(self, body: Callable[[InternalTx], T]) -> T:
        """Run a body in its own durable transaction."""
        ...

    async def submit_flows(self, flows: Sequence[NewFlow]) -> Sequence[Submitted]:
        return await self.internal_transaction(lambda tx: flowing.submit(tx, flows))

    async def find_flows(self, ids: Sequence[str]) -> Sequence[FlowRecord]:
        return await self.read(lambda c: flowing.find(c, ids))

    async def flows(
        self, where: GroupFilter, *, before: int | None, limit: int
    ) -> Sequence[FlowRecord]:
        return await self.read(lambda c: flowing.listing(c, where, before, limit))

    async def steps(self, flow: int) -> Sequence[FlowStep]:
        return await self.read(lambda c: flowing.steps(c, flow))

    async def outline(self, flow: int, *, needs: bool) -> Sequence[OutlinedStep]:
        return await self.read(lambda c: flowing.outline(c, flow, needs=needs))

    async def some_steps(self, flow: int, seqs: Sequence[int]) -> Sequence[FlowStep]:
        return await self.read(lambda c: flowing.some_steps(c, flow, seqs))

    async def reopen(
        self,
        moves: Sequence[Move],
        *,
        fresh: bool = False,
        entries: Sequence[AuditEntry] = (),
    ) -> Sequence[bool]:
        body = partial(reopening.reopen, moves=moves, fresh=fresh)
        return await self.internal_transaction(keys.recorded(body, entries, any))

    async def cancel_flow(self, flow: int, change: Change) -> int:
        return await self.internal_transaction(flowing.cancel(change, flow=flow))

    async def open_batch(self, batch: NewBatch, members: Members) -> Submitted:
        return await self.internal_transaction(batching.open_(batch, members))

    async def fill_batch(
        self, batch: int, members: Members, *, seal: bool
    ) -> Sequence[Submitted]:
        return await self.internal_transaction(batching.fill(batch, members, seal=seal))

    async def find_batches(self, ids: Sequence[str]) -> Sequence[Batch]:
        return await self.read(lambda c: batching.find(c, ids))

    async def batches(
        self, where: GroupFilter, *, before: int | None, limit: int
    ) -> Sequence[Batch]:
        return await self.read(lambda c: batching.listing(c, where, before, limit))

    async def count_batch(self, batch: int) -> Counts:
        return await self.read(lambda c: batching.counts(c, batch))

    async def cancel_batch(self, batch: int, change: Change) -> int:
        ended = 0
        while True:
            some = flowing.cancel_some(change, batch=batch, limit=SLICE)
            cut = await self.internal_transaction(some)
            ended += cut.ended
            if cut.is_last:
                return ended

    async def batches_over(self, *, after: int = 0, limit: int) -> Sequence[int]:
        return await self.read(lambda c: batching.over(c, after, limit))

    async def last_of(self, topic: Topic) -> int:
        return await self.read(lambda c: listing.last_of(c, topic))

    async def tell_batch(self, batch: int, *, now: Instant) -> bool:
        counted = await self.read(lambda c: batching.count_members(c, batch))
        return await self.internal_transaction(batching.tell(batch, counted, now))

    async def finish_batch(
        self,
        batch: int,
        then: Callable[[Batch, Counts], Sequence[NewJob]],
        *,
        now: Instant,
    ) -> bool:
        return await self.internal_transaction(batching.finish(batch, now, then))
