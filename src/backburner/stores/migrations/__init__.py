"""The schema's history, for every database. `HEAD` is where the code expects it."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

HEAD = "0010"
VERSION_TABLE = "backburner_version"


def current(connection: sa.Connection) -> str | None:
    """Return the revision that the database is at, `None` for an empty one."""
    context = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE}
    )
    return context.get_current_revision()


def upgrade(connection: sa.Connection, revision: str = HEAD) -> None:
    """Bring the schema to a revision, inside the caller's transaction."""
    command.upgrade(_config(connection), revision)


def downgrade(connection: sa.Connection, revision: str) -> None:
    """Take the schema back to a revision, inside the caller's transaction."""
    command.downgrade(_config(connection), revision)


def _config(connection: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    config.attributes["version_table"] = VERSION_TABLE
    return config
