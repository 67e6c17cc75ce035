"""`breakable` over stores that do not wait for the disk."""

from typing import Any

from breakable import app

from backburner.stores.postgres.pipe import Pipe
from backburner.stores.sqlite import writer
from backburner.stores.sqlite.database import driver

__all__ = ["app"]


def never_durable(session: writer.Session, durable: bool) -> None:
    """Promise as before, and write when there is time."""
    del durable
    driver(session._connection).execute("PRAGMA synchronous = NORMAL")


def never_durable_pipe(pipe: Pipe, *given: Any, **options: Any) -> None:
    """Promise as before, and write when there is time."""
    make(pipe, *given, **{**options, "is_durable": False})


make = Pipe.__init__
Pipe.__init__ = never_durable_pipe  # type: ignore[assignment, method-assign]
writer.Session._set_durable = never_durable  # type: ignore[method-assign]
