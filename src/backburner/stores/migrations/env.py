"""Run by Alembic: migrate over the connection that `migrations` was given."""

from alembic import context

from backburner.stores.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
