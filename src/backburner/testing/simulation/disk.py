"""The only database of a world, in memory, which every process uses directly."""

import functools
import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

from backburner.stores import migrations
from backburner.stores.sqlite.database import Database, driver

OWN_TABLES: Final = (
    "CREATE TABLE effects (job TEXT NOT NULL, generation INTEGER NOT NULL)",
    "CREATE TABLE notes (job TEXT NOT NULL)",
    "CREATE TABLE writes (job TEXT NOT NULL, is_held INTEGER NOT NULL)",
    "CREATE TABLE pruned (job TEXT NOT NULL, state TEXT NOT NULL)",
    "CREATE TABLE gone (worker TEXT NOT NULL, silent INTEGER NOT NULL)",
    """
    CREATE TABLE ended (queue TEXT, state TEXT, n INTEGER, PRIMARY KEY (queue, state))
    """,
    "CREATE TABLE made (capability TEXT NOT NULL, tags TEXT, input TEXT NOT NULL)",
    """
    CREATE TRIGGER note_pruned AFTER DELETE ON jobs
    BEGIN INSERT INTO pruned VALUES (old.id, old.state); END
    """,
    """
    CREATE TRIGGER note_pruned_flow AFTER DELETE ON flows
    BEGIN INSERT INTO pruned VALUES (old.id, old.state); END
    """,
    """
    CREATE TRIGGER note_pruned_batch AFTER DELETE ON batches
    BEGIN INSERT INTO pruned VALUES (old.id, old.state); END
    """,
    """
    CREATE TRIGGER note_ended AFTER UPDATE OF state ON jobs
    WHEN new.state IN ('succeeded', 'failed', 'cancelled') AND new.state <> old.state
    BEGIN
      INSERT INTO ended VALUES (new.queue, new.state, 1)
      ON CONFLICT DO UPDATE SET n = n + 1;
    END
    """,
    """
    CREATE TRIGGER note_made AFTER INSERT ON jobs
    WHEN new.capability = 'webhook.deliver' OR new.tags LIKE 'batch:%'
         OR new.tags LIKE 'completion:%'
    BEGIN INSERT INTO made VALUES (new.capability, new.tags, new.input); END
    """,
    """
    CREATE TRIGGER note_gone AFTER DELETE ON workers
    BEGIN INSERT INTO gone VALUES (old.id, now_ms() - old.beat_at); END
    """,
)
"""Tables in which the simulation records its own observations."""


class Disk:
    """The data that survives the end of a process."""

    def __init__(self, now_ms: Callable[[], int], changes: Sequence[str]) -> None:
        """Create it with a clock, and with statements that change the schema."""
        self.database = _database()
        self.writing = self.database.connect()
        self.reading = self.database.connect().execution_options(reads=True)
        self._raw = driver(self.writing)
        _template().backup(self._raw)
        self._raw.create_function("now_ms", 0, now_ms)
        for statement in (*OWN_TABLES, *changes):
            self._raw.execute(statement)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Read directly, without any port."""
        return self._raw.execute(statement).fetchall()

    def explain(self, statement: str) -> None:
        """Compile a statement without running it; raise if it is invalid."""
        count = max(map(int, re.findall(r"\?(\d+)", statement)), default=0)
        self._raw.execute(f"EXPLAIN {statement}", (None,) * count)

    def close(self) -> None:
        """Close the connections and discard the data."""
        self.reading.close()
        self.writing.close()
        self.database.dispose()


@functools.cache
def _database() -> Database:
    """Return one database for all worlds in turn: it caches compiled statements."""
    return Database(None)


@functools.cache
def _template() -> sqlite3.Connection:
    """Build the schema once: migrations take longer than many worlds."""
    database = Database(None)
    copy = sqlite3.connect(":memory:")
    with database.connect() as connection:
        with connection.begin():
            migrations.upgrade(connection)
        driver(connection).backup(copy)
    database.dispose()
    return copy
