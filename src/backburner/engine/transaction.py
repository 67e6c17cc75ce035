"""What a transaction body gets: the database, and jobs that commit with it."""

from collections.abc import Callable, Mapping
from typing import Any

from backburner.domain.budget import Reservation
from backburner.domain.job import Instant, NewJob, Owner, Submitted
from backburner.ports.budgets import Ask
from backburner.ports.store import Connection, Tx

Prepare = Callable[[Any, Any, Mapping[str, Any]], NewJob]


class View:
    """What a body that only reads gets: the database as it was at one instant."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        """The `sqlalchemy.Connection`, for a room's own tables."""
        return self._connection


class Transaction(View):
    """A body's view of the transaction under way."""

    __slots__ = ("_defaults", "_prepare", "_tx", "has_submitted")

    def __init__(
        self, tx: Tx, prepare: Prepare, defaults: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(tx.connection)
        self._tx = tx
        self._prepare = prepare
        self._defaults = defaults or {}
        self.has_submitted = False

    def submit(self, capability: Any, value: Any, **options: Any) -> Submitted:
        """Submit a job that exists if, and only if, this transaction commits."""
        job = self._prepare(capability, value, {**self._defaults, **options})
        self.has_submitted = True
        return self._tx.submit([job])[0]

    def reserve(
        self, hold_id: str, tokens: int, owner: Owner, *, until: Instant
    ) -> Reservation:
        """
        Hold tokens that free themselves at a time; once for an id.

        Raises `BudgetExhausted`. Do it last: others wait for the owner's account until
        this transaction commits.
        """
        return self._tx.reserve_hold(Ask(hold_id, owner, until, tokens))

    def settle(self, hold_id: str, tokens: int) -> bool:
        """Book what was used against a reservation; say if it was not done before."""
        return self._tx.settle_hold(hold_id, tokens)

    def release(self, hold_id: str) -> bool:
        """Free a reservation; say if anything was held."""
        return self._tx.release_hold(hold_id)
