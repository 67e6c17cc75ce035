"""Blobs of applications, with their owners."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, with an index of expiring blobs."""
    op.create_table(
        "app_blobs",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
        ),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("app", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("content_type", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("upload", sa.Text, unique=True),
        sqlite_autoincrement=True,
    )
    op.create_index("app_blobs_of_owner", "app_blobs", ["tenant", "user", "app", "seq"])
    where = sa.text("expires_at IS NOT NULL")
    op.create_index(
        "app_blobs_expiring",
        "app_blobs",
        ["expires_at"],
        sqlite_where=where,
        postgresql_where=where,
    )


def downgrade() -> None:
    """Drop the table; the sweeper deletes the contents."""
    op.drop_table("app_blobs")
