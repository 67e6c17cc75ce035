"""
Defers work to the end of a transaction, so that its last locks are taken in order.

The caps of queues and the accounts of the ledger are shared by many transactions. If
each locked them during its body, it would do so in any order and could deadlock.
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

INFO = "backburner.deferred"
"""The key of a connection's `info` under which deferred work is stored."""


class Deferred:
    """Work that is deferred to the end of a transaction, in order."""

    def __init__(self) -> None:
        self._acts: list[Any] = []
        self._savepoints: dict[str, int] = {}

    def add(self, acts: Iterable[Any]) -> None:
        """Defer work."""
        self._acts += acts

    def of(self, *kinds: type[Any]) -> list[Any]:
        """Return the deferred work of some kinds."""
        return [act for act in self._acts if isinstance(act, kinds)]

    def take(self, *kinds: type[Any]) -> list[Any]:
        """Remove and return the deferred work of some kinds."""
        taken = self.of(*kinds)
        self._acts = [act for act in self._acts if not isinstance(act, kinds)]
        return taken

    def save(self, name: str) -> None:
        """Record the start of a savepoint."""
        self._savepoints[name] = len(self._acts)

    def roll_back(self, name: str) -> None:
        """Discard what was deferred since a savepoint."""
        del self._acts[self._savepoints.get(name, 0) :]


def follow_savepoints(engine: sa.Engine) -> None:
    """Make savepoints of an engine's connections apply to deferred work, too."""
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
