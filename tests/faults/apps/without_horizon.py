"""`breakable` over a store that lets readers go as far as the newest event."""

from breakable import app

from backburner.stores.postgres.store import PostgresStore

__all__ = ["app"]

PostgresStore.latest = PostgresStore._look
