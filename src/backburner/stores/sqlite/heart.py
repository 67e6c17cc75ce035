"""A worker's heartbeat: its own connection, for its own thread."""

from dataclasses import astuple

from backburner.ports.clock import Clock
from backburner.ports.store.workers import Vitals
from backburner.stores.sqlite.database import Database, driver, translated


class SqliteHeart:
    """Renews a lease in its own transaction; losing one in a crash is harmless."""

    def __init__(self, database: Database, clock: Clock, statement: str) -> None:
        self._clock = clock
        self._statement = statement
        self._lock = database.lock()
        self._connection = database.connect()
        driver(self._connection).execute("PRAGMA synchronous = NORMAL")

    def beat(self, worker: str, vitals: Vitals) -> bool:
        with translated(), self._lock, self._connection.begin():
            now = self._clock.monotonic()
            beaten = driver(self._connection).execute(
                self._statement, (now, worker, *astuple(vitals))
            )
            return beaten.fetchone() is not None

    def close(self) -> None:
        with self._lock:
            self._connection.close()
        self._lock.close()
