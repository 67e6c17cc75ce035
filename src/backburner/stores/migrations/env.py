"""Run by Alembic: migrates over the connection that `migrations` passes."""

from alembic import context

from backburner.stores.tables import metadata

connection = context.config.attributes["connection"]
is_live = context.config.attributes["is_live"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=context.config.attributes["version_table"],
    transaction_per_migration=is_live,
    is_live=is_live,
)
if is_live:
    with context.begin_transaction():
        context.run_migrations()
else:
    context.run_migrations()
