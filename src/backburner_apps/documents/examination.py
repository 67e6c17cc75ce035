"""What `backburner doctor` reports about `documents`."""

from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa

from backburner import Owner, read_settings
from backburner.commands import Finding, Status
from backburner.tables import owned_by
from backburner_apps.documents.chunk_tables import owners, vectors
from backburner_apps.documents.pgvector import Extension, extension
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.vector_cache import bytes_of

NAME: Final = "documents: vectors"
MEMORY: Final = "BACKBURNER_DOCUMENTS_VECTOR_MEMORY"
FIX: Final = (
    f"increase {MEMORY}, or use pgvector 0.7 or newer: as a superuser, run CREATE "
    "EXTENSION vector in this database, let the role of BACKBURNER_STORE create "
    "tables, and wait ten minutes"
)


def examine(connection: Any) -> Iterator[Finding]:
    """Report where vectors are compared."""
    if connection.dialect.name == "postgresql":
        settings = read_settings(DocumentsSettings)
        yield finding(settings, extension(connection), _largest(connection))


def finding(settings: DocumentsSettings, found: Extension, largest: int) -> Finding:
    """Report where vectors are compared; `largest` is the size of one user's."""
    message = f"compared in memory; those of users that do not fit in {MEMORY}"
    if found.is_used:
        where = f"in the database (pgvector {found.installed})"
        return Finding(Status.PASS, NAME, f"{message}: {where}")
    message = f"{message}: slice by slice, which is slower ({_reason(settings, found)})"
    if found.has_table or largest <= settings.vector_memory:
        return Finding(Status.PASS, NAME, message)
    message = f"{message}. The vectors of one user take {largest:,} bytes"
    return Finding(Status.WARN, NAME, message, FIX)


def _reason(settings: DocumentsSettings, found: Extension) -> str:
    if settings.pgvector == "off":
        return "BACKBURNER_DOCUMENTS_PGVECTOR is off"
    if found.has_table:
        return "the table for pgvector is being filled"
    if found.available:
        return f"pgvector {found.available} is available but not used"
    return "the server has no pgvector"


def _largest(connection: Any) -> int:
    """Return about how many bytes the vectors of the largest user take in memory."""
    most = owners.select().order_by(owners.c.chunks.desc()).limit(1)
    row = connection.execute(most).first()
    if row is None:
        return 0
    mine = owned_by(vectors, Owner(row.tenant, row.user))
    one = sa.select(vectors.c.dimension).where(mine).limit(1)
    dimension = connection.execute(one).scalar()
    return 0 if dimension is None else int(row.chunks) * bytes_of(dimension)
