"""Steps that have begun, and the overrun policy of budgets."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TABLE = "step_results"


def upgrade() -> None:
    """Add columns with constant defaults: no row is rewritten."""
    zero, no = sa.text("0"), sa.false()
    for column in (
        sa.Column("expected", sa.Integer, nullable=False, server_default=zero),
        sa.Column("is_open", sa.Boolean, nullable=False, server_default=no),
        sa.Column("is_concurrent", sa.Boolean, nullable=False, server_default=no),
        sa.Column("doubts", sa.Integer, nullable=False, server_default=zero),
    ):
        op.add_column(TABLE, column)
    extend = sa.text("'extend'")
    policy = sa.Column("overrun", sa.Text, nullable=False, server_default=extend)
    op.add_column("budgets", policy)


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("budgets", "overrun")
    rows = sa.table(TABLE, sa.column("result"))
    op.execute(rows.delete().where(rows.c.result == ""))
    for name in ("expected", "is_open", "is_concurrent", "doubts"):
        op.drop_column(TABLE, name)
