"""
Work at the end of a transaction, so that its last locks are taken in order.

Caps on what waits and the accounts of the ledger are shared by many transactions. One
that took them as it went along would take them in whatever order its body asks.
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

INFO = "backburner.deferred"
"""Where a connection notes what its transaction has deferred."""


class Deferred:
    """Acts that wait for the end of their transaction, in the order they were asked."""

    def __init__(self) -> None:
        self._acts: list[Any] = []
        self._savepoints: dict[str, int] = {}

    def add(self, acts: Iterable[Any]) -> None:
        """Defer acts."""
        self._acts += acts

    def of(self, *kinds: type[Any]) -> list[Any]:
        """Return the acts of some kinds."""
        return [act for act in self._acts if isinstance(act, kinds)]

    def take(self, *kinds: type[Any]) -> list[Any]:
        """Return the acts of some kinds, and keep the others."""
        taken = self.of(*kinds)
        self._acts = [act for act in self._acts if not isinstance(act, kinds)]
        return taken

    def save(self, name: str) -> None:
        """Note that a savepoint begins."""
        self._savepoints[name] = len(self._acts)

    def roll_back(self, name: str) -> None:
        """Forget what was deferred since a savepoint."""
        del self._acts[self._savepoints.get(name, 0) :]


def follow_savepoints(engine: sa.Engine) -> None:
    """Have savepoints of an engine's connections apply to what is deferred, too."""
    sa.event.listen(engine, "savepoint", _save)
    sa.event.listen(engine, "rollback_savepoint", _roll_back)


def _save(connection: sa.Connection, name: str) -> None:
    deferred: Deferred | None = connection.info.get(INFO)
    if deferred is not None:
        deferred.save(name)


def _roll_back(connection: sa.Connection, name: str, _context: None) -> None:
    deferred: Deferred | None = connection.info.get(INFO)
    if deferred is not None:
        deferred.roll_back(name)
