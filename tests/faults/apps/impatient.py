"""`breakable` in a process that waits five seconds for a statement, not thirty."""

from breakable import app

from backburner.stores.postgres import database

__all__ = ["app"]

database.STATEMENT_SECONDS = 5.0
