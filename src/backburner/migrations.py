"""What the Alembic revisions of applications may use beside Alembic itself."""

from backburner.stores.migrations import create_index_live

__all__ = ["create_index_live"]
