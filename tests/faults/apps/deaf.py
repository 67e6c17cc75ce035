"""`breakable` in a process that gets no notification of others."""

from typing import Any

from breakable import app

from backburner.stores.postgres.notifier import PostgresNotifier

__all__ = ["app"]


def hear_nothing(_notifier: PostgresNotifier, *_told: Any) -> None:
    """Ignore every notification."""


PostgresNotifier._hear = hear_nothing  # type: ignore[method-assign]
