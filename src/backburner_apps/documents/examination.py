"""What `backburner doctor` reports about `documents`."""

from collections.abc import Iterator
from typing import Any, Final

from backburner.commands import Finding, Status
from backburner_apps.documents.pgvector import Extension, extension

NAME: Final = "documents: vectors"
IN_MEMORY: Final = "compared in the memory of each process"
CREATE: Final = (
    "as a superuser, run CREATE EXTENSION vector in this database (version 0.7 or "
    "newer), let the role of BACKBURNER_STORE create tables, and wait ten minutes"
)


def examine(connection: Any) -> Iterator[Finding]:
    """Report where vectors are compared."""
    if connection.dialect.name == "postgresql":
        yield finding(extension(connection))


def finding(found: Extension) -> Finding:
    """Report whether pgvector is used, and what to do if it could be."""
    if found.is_used:
        message = f"compared in the database (pgvector {found.installed})"
        return Finding(Status.PASS, NAME, message)
    if found.available is None:
        return Finding(Status.PASS, NAME, f"{IN_MEMORY}: the server has no pgvector")
    if found.has_table:
        message = f"{IN_MEMORY}: the table for pgvector is being filled"
        return Finding(Status.PASS, NAME, message)
    message = f"{IN_MEMORY}: pgvector {found.available} is available but not used"
    return Finding(Status.WARN, NAME, message, CREATE)
