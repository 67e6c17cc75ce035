"""Budgets, and the ledger of holds and usage."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the ledger."""
    op.create_table(
        "budgets",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("per", sa.BigInteger, nullable=False),
        sa.Column("ceiling", sa.BigInteger, nullable=False),
        sa.Column("is_declared", sa.Boolean, nullable=False),
        sqlite_autoincrement=True,
    )
    _index("budgets_by_name", "budgets", ["scope", "value", "unit", "per"], unique=True)
    _create_accounts()
    op.create_table(
        "holds",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("id", sa.Text),
        sa.Column("job", sa.BigInteger),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("account", sa.BigInteger, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("used", sa.BigInteger),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("is_estimated", sa.Boolean, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.CheckConstraint("amount >= 0 AND used >= 0", name="holds_amounts"),
        sqlite_autoincrement=True,
    )
    _index("holds_by_job", "holds", ["job"], "job IS NOT NULL")
    _index("holds_by_id", "holds", ["id", "account"], "id IS NOT NULL", unique=True)
    _index("holds_by_account", "holds", ["account"])
    _index(
        "holds_by_expiry", "holds", ["expires_at"], "is_open AND expires_at IS NOT NULL"
    )
    op.create_table(
        "entries",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("account", sa.BigInteger, nullable=False),
        sa.Column("hold", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("ceiling", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    _index("entries_by_account", "entries", ["account", "seq"])


def _create_accounts() -> None:
    zero = sa.text("0")
    op.create_table(
        "accounts",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("per", sa.BigInteger, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("window_at", sa.BigInteger, nullable=False),
        sa.Column("ceiling", sa.BigInteger, nullable=False),
        sa.Column("held", sa.BigInteger, nullable=False, server_default=zero),
        sa.Column("settled", sa.BigInteger, nullable=False, server_default=zero),
        sa.Column("overdraft", sa.BigInteger, nullable=False, server_default=zero),
        sa.CheckConstraint(
            "held >= 0 AND overdraft >= 0 AND settled >= overdraft",
            name="accounts_balance",
        ),
        sqlite_autoincrement=True,
    )
    named = ["scope", "unit", "per", "tenant", "value", "window_at"]
    _index("accounts_by_name", "accounts", named, unique=True)
    _index("accounts_by_window", "accounts", ["window_at"])
    _index("accounts_held", "accounts", ["seq"], "held > 0")
    if op.get_bind().dialect.name == "postgresql":
        # Updated at every admission without a change of indexed columns.
        op.execute("ALTER TABLE accounts SET (fillfactor = 60)")


def _index(
    name: str,
    table: str,
    columns: Sequence[str],
    where: str | None = None,
    *,
    unique: bool = False,
) -> None:
    only = None if where is None else sa.text(where)
    op.create_index(
        name,
        table,
        list(columns),
        unique=unique,
        sqlite_where=only,
        postgresql_where=only,
    )


def downgrade() -> None:
    """Drop the ledger."""
    for table in ("entries", "holds", "accounts", "budgets"):
        op.drop_table(table)
