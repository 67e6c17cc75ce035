"""The access to the database on which the modules of this package are built."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import sqlalchemy as sa

from backburner.ports.store.transactions import Tx

T = TypeVar("T")


class Access(Protocol):
    """Reads and transactions; the code run in them is the same on both databases."""

    async def read(self, read: Callable[[sa.Connection], T]) -> T:
        """Run a read; each statement sees the data that was committed before it."""
        ...

    async def transact(self, body: Callable[[Tx], T]) -> T:
        """Run a body in its own durable transaction."""
        ...
