"""
A database with the schema in it and nothing else, again and again.

Migrations take half a second, emptying the tables that were used a tenth of that. So
the schema stays from test to test for as long as it looks as the migrations left it.
"""

import asyncio
import shutil
from contextlib import suppress

import asyncpg
import pytest

from backburner.ports.faults import NoFaults
from backburner.stores.postgres.store import PostgresStore

OTHERS_OUT = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
NEW = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
SHAPE = """
SELECT md5(string_agg(line, ';' ORDER BY line)) FROM (
  SELECT concat_ws(' ', relkind, relname, reloptions) FROM pg_class
   WHERE relnamespace = 'public'::regnamespace
  UNION ALL
  SELECT concat_ws(' ', relname, attname, attnum, atttypid, attnotnull,
                   pg_get_expr(adbin, adrelid))
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
   WHERE relnamespace = 'public'::regnamespace
  UNION ALL
  SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
  UNION ALL
  SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
  UNION ALL
  SELECT concat_ws(' ', pg_get_triggerdef(oid), tgenabled) FROM pg_trigger
   WHERE NOT tgisinternal
  UNION ALL
  SELECT concat_ws(' ', proname, prosrc) FROM pg_proc
   WHERE pronamespace = 'public'::regnamespace
) AS lines (line)
"""
MARKS = """
SELECT md5(string_agg(mark, ';' ORDER BY mark)) FROM (
  SELECT concat_ws(' ', 'c', oid, relname, reloptions) FROM pg_class
   WHERE relnamespace = 'public'::regnamespace
  UNION ALL
  SELECT concat_ws(' ', 'a', attrelid, attnum, xmin) FROM pg_attribute
   WHERE attrelid >= 16384 AND attrelid IN (
     SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
  UNION ALL
  SELECT concat_ws(' ', 'd', oid, xmin) FROM pg_attrdef
  UNION ALL
  SELECT concat_ws(' ', 'n', oid, xmin) FROM pg_constraint
   WHERE connamespace = 'public'::regnamespace
  UNION ALL
  SELECT concat_ws(' ', 't', oid, xmin) FROM pg_trigger WHERE NOT tgisinternal
  UNION ALL
  SELECT concat_ws(' ', 'p', oid, xmin) FROM pg_proc
   WHERE pronamespace = 'public'::regnamespace
) AS marks (mark)
"""
"""As long as no row of the catalogue is new, nothing can look different."""
TABLES = """
SELECT relname::text, pg_relation_size(oid) > 0 FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""
"""All tables, and whether anything was ever written to them."""
VERSION = "backburner_version"
RESTART = """
SELECT setval(format('%I', sequencename), start_value, false) FROM pg_sequences
 WHERE schemaname = 'public'
"""
FORGET = "DELETE FROM pg_statistic WHERE starelid >= 16384"
"""Of all tables but the catalogue's."""


class Migrated:
    """One database that is brought back to where its migrations left it."""

    def __init__(self, url):
        self.url = url
        self._shape = self._marks = None
        self._tables = []
        self._loop = asyncio.new_event_loop()
        self._connection = None

    def clean(self):
        """Leave the schema and nothing else."""
        self._loop.run_until_complete(self._clean())

    def execute(self, script):
        """Run statements by the connection that stays."""
        self._loop.run_until_complete(self._connection.execute(script))

    def close(self):
        """Close the connection."""
        if self._connection is not None:
            self._loop.run_until_complete(self._connection.close(timeout=10))
        self._loop.close()

    async def _clean(self):
        connection = await self._connected()
        await connection.execute(OTHERS_OUT)
        if not await self._is_emptied(connection):
            await self._migrate(connection)

    async def _connected(self):
        """
        Return a connection that stays: it has read the catalogue.

        A test may have ended all sessions, so it is asked whether it is still there.
        """
        if self._connection is not None:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await self._connection.execute("DISCARD TEMP")
                return self._connection
            self._connection.terminate()
        self._connection = await asyncpg.connect(self.url)
        return self._connection

    async def _is_emptied(self, connection):
        """Empty the tables, unless a test has changed more than what is in them."""
        if self._shape is None:
            return False
        with suppress(asyncpg.PostgresError):
            found = dict(await connection.fetch(TABLES))
            for table in set(found) - {*self._tables, VERSION}:
                await connection.execute(f'DROP TABLE "{table}" CASCADE')
            if not await self._is_unchanged(connection):
                return False
            used = [table for table in self._tables if found.get(table)]
            async with connection.transaction():
                # Some tables refuse to forget, whoever asks.
                await connection.execute("SET LOCAL session_replication_role = replica")
                if used:
                    await connection.execute(f"TRUNCATE {', '.join(used)} CASCADE")
                await connection.execute(RESTART)
                await connection.execute(FORGET)
            return True
        return False

    async def _is_unchanged(self, connection):
        """Say whether the schema is as the migrations left it."""
        marks = await connection.fetchval(MARKS)
        if marks != self._marks:
            if self._shape != await connection.fetchval(SHAPE):
                return False
            self._marks = marks
        return True

    async def _migrate(self, connection):
        await connection.execute(NEW)
        store = PostgresStore(self.url, faults=NoFaults())
        await store.migrate()
        await store.close()
        self._shape = await connection.fetchval(SHAPE)
        self._marks = await connection.fetchval(MARKS)
        found = dict(await connection.fetch(TABLES))
        self._tables = [table for table in found if table != VERSION]


@pytest.fixture(params=["sqlite", "postgres"])
def each_store(request, tmp_path, template):
    """One database of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("migrated_url")
    shutil.copy(template, tmp_path)
    return f"sqlite:///{tmp_path}/jobs.db"
