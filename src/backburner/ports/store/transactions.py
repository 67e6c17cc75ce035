"""What the body of a transaction may do."""

from collections.abc import Sequence
from typing import Any, Protocol

from backburner.domain.costs.budget import Reservation
from backburner.domain.events.publication import Publication
from backburner.domain.groups.batch import Batch, Members, NewBatch
from backburner.domain.groups.flow import NewFlow, NewStep
from backburner.domain.jobs.job import NewJob, Submitted
from backburner.ports.store.budgets import HoldRequest


class Connection(Protocol):
    """What a transaction body may do with its database: a `sqlalchemy.Connection`."""

    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """Run an SQLAlchemy statement inside the transaction."""
        ...


class Tx(Protocol):
    """A transaction under way. Plain calls only: nobody can await inside one."""

    @property
    def connection(self) -> Connection:
        """The database, for an application's own tables."""
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
        Add to a batch in this transaction, as `Batches.fill_batch` does.

        If another transaction holds the batch, this one may be rolled back and begun
        anew with the batch's lock, since its locks have an order.
        """
        ...

    def reserve_hold(self, ask: HoldRequest) -> Reservation:
        """Hold without a job, once for an id, or raise `BudgetExhausted`."""
        ...

    def settle_hold(self, hold_id: str, tokens: int) -> bool:
        """
        Book what was used against a hold, once; say if it was not done before.

        What was released or freed itself by then is booked as overdraft, in the window
        of the hold. `False`, too, if there is none.
        """
        ...

    def release_hold(self, hold_id: str) -> bool:
        """Free a hold that is not settled; say if anything was held."""
        ...

    def publish(self, events: Sequence[Publication]) -> None:
        """Store events of applications in this transaction."""
        ...

    def has_signal(self, job: int, names: Sequence[str]) -> bool:
        """Say whether one of these waits of a job was signalled."""
        ...

    def advance(self, application: str, mark: int, upto: int) -> bool:
        """Advance an application's cursor; `False` if another process did."""
        ...
