"""The schema's history for all databases. `HEAD` is the revision the code needs."""

import threading
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from backburner.ports.history import History

HEAD = "0028"
VERSION_TABLE = "backburner_version"
_HERE = Path(__file__).parent
ENGINE = History(
    "backburner", _HERE / "versions", VERSION_TABLE, HEAD, frozenset({HEAD})
)
"""The engine's own tables. Applications bring their own histories."""
_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps the running migration in module globals."""


def current(connection: sa.Connection, history: History = ENGINE) -> str | None:
    """Return the revision of the database; `None` if it is empty."""
    if not sa.inspect(connection).has_table(history.version_table):
        return None
    version = sa.column("version_num", sa.String)
    found = sa.select(version).select_from(sa.table(history.version_table))
    return connection.execute(found).scalar()


def upgrade(
    connection: sa.Connection, revision: str = "head", history: History = ENGINE
) -> None:
    """Upgrade the schema to a revision, inside the caller's transaction."""
    _do("upgrade", connection, revision, history)


def upgrade_live(connection: sa.Connection, history: History = ENGINE) -> None:
    """
    Upgrade the schema while other processes use it.

    Each revision is its own transaction, and `create_index_live` builds indexes
    concurrently. The connection must not be in a transaction.
    """
    _do("upgrade", connection, "head", history, is_live=True)


def create_index_live(
    name: str,
    table: str,
    columns: Sequence[str],
    *,
    where: sa.TextClause | None = None,
) -> None:
    """
    Build an index in a revision, on a table that may be large and in use.

    It must come first in its revision, as it commits what the revision did before. An
    interrupted revision runs again as a whole, so an existing index is kept, and an
    incomplete one is built again.
    """
    from alembic import op  # noqa: PLC0415 - see `_do`

    context = op.get_context()
    if not context.opts.get("is_live"):
        op.create_index(
            name, table, columns, sqlite_where=where, postgresql_where=where
        )
        return
    with context.autocommit_block():
        run = op.get_bind().execute
        patience = run(sa.text("SHOW lock_timeout")).scalar()
        run(_BE_PATIENT, {"span": "0"})  # it waits for others; nothing waits for it
        if not run(_IS_VALID, {"name": name}).scalar():
            op.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')
        op.create_index(
            name,
            table,
            columns,
            postgresql_where=where,
            postgresql_concurrently=True,
            if_not_exists=True,
        )
        run(_BE_PATIENT, {"span": patience})


_BE_PATIENT = sa.text("SELECT set_config('lock_timeout', :span, false)")
_IS_VALID = sa.text(
    "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"
)


def downgrade(connection: sa.Connection, revision: str) -> None:
    """Downgrade the schema to a revision, inside the caller's transaction."""
    _do("downgrade", connection, revision, ENGINE)


def _do(
    verb: str,
    connection: sa.Connection,
    revision: str,
    history: History,
    *,
    is_live: bool = False,
) -> None:
    # Loading takes a sixth of a second, which a process at `HEAD` does not need.
    from alembic import command, config  # noqa: PLC0415

    given = config.Config()
    # A `%` in a path would start an interpolation.
    given.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    given.set_main_option("path_separator", "newline")
    given.set_main_option("version_locations", str(history.versions).replace("%", "%%"))
    given.attributes["connection"] = connection
    given.attributes["version_table"] = history.version_table
    given.attributes["is_live"] = is_live
    with _ONE_AT_A_TIME:
        getattr(command, verb)(given, revision)
