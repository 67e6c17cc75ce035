"""`breakable` on a database that turns everybody away before the worker enlists."""

import asyncpg
import sqlalchemy as sa
from breakable import app

from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres.store import PostgresStore

__all__ = ["app"]

SHUT = """
UPDATE pg_database SET datallowconn = false WHERE datname = $1
"""
END = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
 WHERE datname = $1 AND application_name = 'backburner'
"""

enlist = PostgresStore.enlist


async def enlist_in_vain(store: PostgresStore, worker: WorkerInfo) -> None:
    """Have the server end all sessions and take no new ones, then go on."""
    url = sa.make_url(store._database.dsn)
    elsewhere = url.set(database="postgres").render_as_string(hide_password=False)
    admin = await asyncpg.connect(elsewhere)
    for statement in (SHUT, END):
        await admin.execute(statement, url.database)
    await admin.close()
    await enlist(store, worker)


PostgresStore.enlist = enlist_in_vain  # type: ignore[method-assign]
