"""`breakable` over a store that does not wait for the disk."""

from breakable import app

from backburner.stores.sqlite import writer
from backburner.stores.sqlite.database import driver

__all__ = ["app"]


def never_durable(session: writer.Session, durable: bool) -> None:
    """Promise as before, and write when there is time."""
    del durable
    driver(session._connection).execute("PRAGMA synchronous = NORMAL")


writer.Session._set_durable = never_durable  # type: ignore[method-assign]
