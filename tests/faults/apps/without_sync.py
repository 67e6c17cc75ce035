"""`breakable` over stores that do not wait for the disk."""

from typing import Any

from breakable import app

from backburner.stores.postgres.lane import Lane
from backburner.stores.sqlite import writer
from backburner.stores.sqlite.database import driver

__all__ = ["app"]


def never_durable(session: writer.Session, durable: bool) -> None:
    """Promise as before, and write when there is time."""
    del durable
    driver(session._connection).execute("PRAGMA synchronous = NORMAL")


def never_durable_lane(lane: Lane, *given: Any, is_durable: bool = True) -> None:
    """Promise as before, and write when there is time."""
    del is_durable
    make(lane, *given, is_durable=False)


make = Lane.__init__
Lane.__init__ = never_durable_lane  # type: ignore[assignment, method-assign]
writer.Session._set_durable = never_durable  # type: ignore[method-assign]
