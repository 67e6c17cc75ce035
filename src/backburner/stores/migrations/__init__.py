"""The schema's history, for every database. `HEAD` is where the code expects it."""

from pathlib import Path

import sqlalchemy as sa

HEAD = "0012"
VERSION_TABLE = "backburner_version"


def current(connection: sa.Connection) -> str | None:
    """Return the revision that the database is at, `None` for an empty one."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version = sa.column("version_num", sa.String)
    found = sa.select(version).select_from(sa.table(VERSION_TABLE))
    return connection.execute(found).scalar()


def upgrade(connection: sa.Connection, revision: str = HEAD) -> None:
    """Bring the schema to a revision, inside the caller's transaction."""
    _do("upgrade", connection, revision)


def downgrade(connection: sa.Connection, revision: str) -> None:
    """Take the schema back to a revision, inside the caller's transaction."""
    _do("downgrade", connection, revision)


def _do(verb: str, connection: sa.Connection, revision: str) -> None:
    # Takes a sixth of a second to load, which a process at `HEAD` does not need.
    from alembic import command, config  # noqa: PLC0415

    given = config.Config()
    given.set_main_option("script_location", str(Path(__file__).parent))
    given.attributes["connection"] = connection
    given.attributes["version_table"] = VERSION_TABLE
    getattr(command, verb)(given, revision)
