"""The operations of a transaction body."""

from collections.abc import Sequence
from typing import Any, Protocol

from backburner.domain.costs.budget import Reservation
from backburner.domain.events.publication import Publication
from backburner.domain.groups.batch import Batch, Members, NewBatch
from backburner.domain.groups.flow import NewFlow, NewStep
from backburner.domain.jobs.job import NewJob, Submitted
from backburner.ports.store.budgets import HoldRequest
from backburner.ports.store.keys import AuditEntry


class Connection(Protocol):
    """The database connection of a transaction body: a `sqlalchemy.Connection`."""

    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """Run an SQLAlchemy statement inside the transaction."""
        ...


class Tx(Protocol):
    """An open transaction. All calls are plain: a body cannot await."""

    @property
    def connection(self) -> Connection:
        """The connection, for an application's own tables."""
        ...

    def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        """Store jobs in this transaction."""
        ...

    def extend(self, flow: int, steps: Sequence[NewStep]) -> None:
        """Add steps to the flow of the step that is being settled."""
        ...

    def submit_flows(self, flows: Sequence[NewFlow]) -> Sequence[Submitted]:
        """Store flows with their steps in this transaction."""
        ...

    def open_batch(self, batch: NewBatch, members: Members) -> Submitted:
        """Store a batch and its first members in this transaction."""
        ...

    def find_batch(self, batch_id: str) -> Batch | None:
        """Return a batch as this transaction sees it."""
        ...

    def fill_batch(
        self, batch: int, members: Members, *, seal: bool
    ) -> Sequence[Submitted]:
        """
        Add members to a batch in this transaction, like `BatchStore.fill_batch`.

        If another transaction holds the batch, this one may be rolled back and started
        again with the batch's lock, because locks are taken in a fixed order.
        """
        ...

    def reserve_hold(self, ask: HoldRequest) -> Reservation:
        """Reserve an amount without a job, once per id, or raise `BudgetExhausted`."""
        ...

    def settle_hold(self, hold_id: str, tokens: int) -> bool:
        """
        Settle a hold with the actual usage; return whether it was still open.

        If it was released or has expired, the usage is recorded as overdraft in the
        window of the hold. Also returns `False` if there is no such hold.
        """
        ...

    def release_hold(self, hold_id: str) -> bool:
        """Release a hold that is not settled; return whether anything was held."""
        ...

    def publish(self, events: Sequence[Publication]) -> None:
        """Store events of applications in this transaction."""
        ...

    def record(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries to the audit log in this transaction."""
        ...

    def has_signal(self, job: int, names: Sequence[str]) -> bool:
        """Return whether one of these waits of a job has a signal."""
        ...

    def advance(self, application: str, mark: int, upto: int) -> bool:
        """Advance an application's cursor; `False` if another process did."""
        ...
