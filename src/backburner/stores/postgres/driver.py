"""A connection of the driver that need not ask what the server's own types are."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final

import asyncpg

FIRST_OWN: Final = 10_000
"""Types below this number are built into PostgreSQL and the same on every server."""

_known: dict[frozenset[int], Any] = {}


class Connection(asyncpg.Connection):  # type: ignore[misc]  # the driver is untyped
    """
    Looks up the type of integer arrays once per process, not once per connection.

    The driver's query takes the server longer than most of our statements. The method
    is not public; a release of the driver without it queries as before.
    """

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float | None,  # noqa: ASYNC109 - the driver's own
    ) -> tuple[Any, Any]:
        """Return the descriptions of types, and the statement that read them."""
        asked = frozenset(typeoids)
        if asked in _known:
            return _known[asked], SimpleNamespace(name="none was needed")
        rows, statement = await super()._introspect_types(typeoids, timeout)
        if all(number < FIRST_OWN for number in asked):
            _known[asked] = rows
        return rows, statement
