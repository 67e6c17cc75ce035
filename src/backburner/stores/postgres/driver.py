"""A connection of the driver that need not ask what the server's own types are."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final

import asyncpg

FIRST_OWN: Final = 10_000
"""Types below this number are fixed in PostgreSQL's source: alike on every server."""

_known: dict[frozenset[int], Any] = {}


class Connection(asyncpg.Connection):  # type: ignore[misc]  # the driver is untyped
    """
    Asks once per process what an array of integers is, not once per connection.

    The driver's query takes the server longer than most statements of ours. It knows
    the rows only by a method that is not public; a release of the driver without that
    method asks as it always did.
    """

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float | None,  # noqa: ASYNC109 - the driver's own
    ) -> tuple[Any, Any]:
        """Return what is known of types, and the statement that told it."""
        asked = frozenset(typeoids)
        if asked in _known:
            return _known[asked], SimpleNamespace(name="none was needed")
        rows, statement = await super()._introspect_types(typeoids, timeout)
        if all(number < FIRST_OWN for number in asked):
            _known[asked] = rows
        return rows, statement
