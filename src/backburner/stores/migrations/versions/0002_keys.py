"""API keys and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables; the audit log is append-only."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("last_used_at", sa.BigInteger),
    )
    op.create_index("api_keys_by_tenant", "api_keys", ["tenant", "created_at"])
    op.create_table(
        "audit",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_by_tenant", "audit", ["tenant", "seq"])
    for statement in _GUARDS[op.get_bind().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("audit")
    op.drop_table("api_keys")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_only_grows()")


_GUARDS = {
    "sqlite": (
        (
            "CREATE TRIGGER audit_keeps BEFORE DELETE ON audit "
            "BEGIN SELECT RAISE(ABORT, 'audit only grows'); END"
        ),
        (
            "CREATE TRIGGER audit_stays BEFORE UPDATE ON audit "
            "BEGIN SELECT RAISE(ABORT, 'audit only grows'); END"
        ),
    ),
    "postgresql": (
        (
            "CREATE FUNCTION audit_only_grows() RETURNS trigger LANGUAGE plpgsql "
            "AS 'BEGIN RAISE EXCEPTION ''audit only grows''; END'"
        ),
        (
            "CREATE TRIGGER audit_only_grows "
            "BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_only_grows()"
        ),
    ),
}
