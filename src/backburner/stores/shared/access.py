"""The access to the database that a store offers to the modules of this package."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import sqlalchemy as sa

from backburner.ports.store.transactions import Tx

T = TypeVar("T")


class Access(Protocol):
    """Reads and transactions; the code that they run is the same on every database."""

    async def read(self, read: Callable[[sa.Connection], T]) -> T:
        """Run a read; each statement sees what was committed before it."""
        ...

    async def transact(self, body: Callable[[Tx], T]) -> T:
        """Run a body in its own durable transaction."""
        ...
