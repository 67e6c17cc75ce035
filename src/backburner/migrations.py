"""Helpers for the Alembic revisions of applications."""

from backburner.stores.migrations import create_index_live

__all__ = ["create_index_live"]
