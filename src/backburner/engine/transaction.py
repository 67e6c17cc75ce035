"""The transaction that a body receives: its connection and operations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, Unpack, overload

from backburner.domain.costs.budget import Reservation
from backburner.domain.errors import BatchNotFound
from backburner.domain.events.publication import publication
from backburner.domain.groups.batch import Members, NewBatch
from backburner.domain.groups.flow import NewFlow
from backburner.domain.jobs.job import Instant, NewJob, Owner, Submitted, Visibility
from backburner.engine.flow import NOTHING, Chain, Flow, Typed
from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.ports.store.budgets import HoldRequest
from backburner.ports.store.transactions import Connection, Tx

In = TypeVar("In")


class Preparing(Protocol):
    """Validates what a transaction body submits and prepares its rows."""

    def job(self, capability: Any, value: Any, given: SubmitOptions) -> NewJob:
        """Return a job."""
        ...

    def flow(
        self, flow: Flow | Chain, given: SubmitGroupOptions, value: Any = NOTHING
    ) -> NewFlow:
        """Return a flow, or a chain with its input."""
        ...

    def batch(
        self,
        jobs: Iterable[tuple[Any, Any]],
        flows: Iterable[Flow],
        given: SubmitGroupOptions,
        *,
        expected: int | None,
        completion: Mapping[str, Any] | None,
        sealed: bool | None,
    ) -> tuple[NewBatch, Members]:
        """Return a batch and its first members."""
        ...

    def members(
        self,
        jobs: Iterable[tuple[Any, Any]],
        flows: Iterable[Flow],
        given: SubmitGroupOptions,
    ) -> tuple[Owner, Members]:
        """Return prepared members for a batch, and the owner it must have."""
        ...


class View:
    """What a read-only body receives: a snapshot of the database."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        """The `sqlalchemy.Connection`, for an application's own tables."""
        return self._connection


class Transaction(View):
    """What a transaction body receives."""

    __slots__ = (
        "_defaults",
        "_now",
        "_prepare",
        "_steps",
        "_tx",
        "filled",
        "has_published",
        "has_submitted",
    )

    def __init__(
        self,
        tx: Tx,
        prepare: Preparing,
        defaults: SubmitGroupOptions | None = None,
        *,
        now: Callable[[], Instant],
    ) -> None:
        super().__init__(tx.connection)
        self._tx = tx
        self._prepare = prepare
        self._defaults: SubmitGroupOptions = defaults or {}
        self._now = now
        self._steps: dict[str, Mapping[str, str]] = {}
        self.has_submitted = False
        self.has_published = False
        self.filled: set[int] = set()
        """The batches that got more members; they are checked after the commit."""

    def now(self) -> Instant:
        """Return the time by the store's clock, in milliseconds since the epoch."""
        return self._now()

    @overload
    def submit(
        self,
        capability: Typed[In, Any],
        value: In,
        **options: Unpack[SubmitOptions],
    ) -> Submitted: ...

    @overload
    def submit(
        self, capability: str, value: Any, **options: Unpack[SubmitOptions]
    ) -> Submitted: ...

    def submit(
        self, capability: Any, value: Any, **options: Unpack[SubmitOptions]
    ) -> Submitted:
        """Submit a job that exists if, and only if, this transaction commits."""
        job = self._prepare.job(capability, value, {**self._defaults, **options})
        self.has_submitted = True
        return self._tx.submit([job])[0]

    def publish(
        self, topic: str, type_: str, data: Mapping[str, Any], *, to: Visibility
    ) -> None:
        """
        Publish an event on a topic if this transaction commits.

        `to` says who may read it: an `Owner`, or a `Tenant` for all its users. `data`
        is a mapping that can be serialised as JSON, at most 64 KiB. Readers follow
        `/v1/events?topic=…`. Raises `InvalidInput`.
        """
        event = publication(topic, type_, data, to=to, at=self._now())
        self._tx.publish([event])
        self.has_published = True

    def advance(self, application: str, mark: int, upto: int) -> bool:
        """Advance an application's cursor; `False` if another process did."""
        return self._tx.advance(application, mark, upto)

    def submit_flow(
        self,
        flow: Flow | Chain,
        value: Any = NOTHING,
        **options: Unpack[SubmitGroupOptions],
    ) -> Submitted:
        """Submit a flow, or a chain with its input, if this transaction commits."""
        new = self._prepare.flow(flow, {**self._defaults, **options}, value)
        self.has_submitted = True
        submitted = self._tx.submit_flows([new])[0]
        if not submitted.replayed:
            jobs = {step.job.step or "": step.job.id for step in new.steps}
            self._steps[submitted.id] = jobs
        return submitted

    def step_ids(self, flow_id: str) -> Mapping[str, str]:
        """
        Return the job ids of a flow that this transaction submitted, by step name.

        Raises `KeyError` for any other flow, including one returned for a repeated
        idempotency key.
        """
        return self._steps[flow_id]

    def open_batch(
        self,
        jobs: Iterable[tuple[Typed[Any, Any] | str, Any]] = (),
        flows: Iterable[Flow] = (),
        *,
        expected: int | None = None,
        completion: Mapping[str, Any] | None = None,
        sealed: bool | None = None,
        **options: Unpack[SubmitGroupOptions],
    ) -> Submitted:
        """
        Open a batch if this transaction commits.

        For the arguments see `open_batch`.
        """
        batch, members = self._prepare.batch(
            jobs,
            flows,
            {**self._defaults, **options},
            expected=expected,
            completion=completion,
            sealed=sealed,
        )
        self.has_submitted = True
        return self._tx.open_batch(batch, members)

    def add_to_batch(
        self,
        batch_id: str,
        jobs: Iterable[tuple[Typed[Any, Any] | str, Any]] = (),
        flows: Iterable[Flow] = (),
        *,
        seal: bool = False,
        **options: Unpack[SubmitGroupOptions],
    ) -> Sequence[Submitted]:
        """
        Add members to a batch of the same owner; `seal` allows no more afterwards.

        Return the result of each, jobs before flows. With an `idempotency_key`, each
        member is stored once, however often this is repeated.
        """
        given: SubmitGroupOptions = {**self._defaults, **options}
        owner, members = self._prepare.members(jobs, flows, given)
        batch = self._tx.find_batch(batch_id)
        if batch is None or batch.owner != owner:
            raise BatchNotFound(f"batch {batch_id[:60]!r} does not exist")
        self.has_submitted = True
        self.filled.add(batch.seq)
        return self._tx.fill_batch(batch.seq, members, seal=seal)

    def reserve(
        self, hold_id: str, tokens: int, owner: Owner, *, until: Instant
    ) -> Reservation:
        """
        Reserve tokens until a time; a repeated `id` reserves once.

        Raises `BudgetExhausted`. Call it last: other transactions wait for the owner's
        account until this one commits.
        """
        return self._tx.reserve_hold(HoldRequest(hold_id, owner, until, tokens))

    def settle(self, hold_id: str, tokens: int) -> bool:
        """
        Settle a reservation with the actual usage.

        Return whether it was still open.
        """
        return self._tx.settle_hold(hold_id, tokens)

    def release(self, hold_id: str) -> bool:
        """Release a reservation; return whether anything was held."""
        return self._tx.release_hold(hold_id)
