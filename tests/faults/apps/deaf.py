"""`breakable` in a process that ignores the notifications of other processes."""

from typing import Any

from breakable import app

from backburner.stores.postgres.notifier import PostgresNotifier

__all__ = ["app"]


def ignore(_notifier: PostgresNotifier, *_notification: Any) -> None:
    """Ignore a notification."""


PostgresNotifier._hear = ignore  # type: ignore[method-assign]
