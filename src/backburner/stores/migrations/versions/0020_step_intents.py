"""Steps that were begun: rows without a result, and how often that was in doubt."""

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


def downgrade() -> None:
    """Forget what was begun and not finished."""
    rows = sa.table(TABLE, sa.column("result"))
    op.execute(rows.delete().where(rows.c.result == ""))
    for name in ("expected", "is_open", "is_concurrent", "doubts"):
        op.drop_column(TABLE, name)
