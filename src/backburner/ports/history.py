"""The schema revisions of the engine or of one application."""

from pathlib import Path
from typing import NamedTuple

PREFIX = "backburner_version_"
"""The prefix of the names of applications' version tables."""


class History(NamedTuple):
    """Revisions that are applied in order, and the table with the current one."""

    name: str
    """The application's name."""
    versions: Path
    """The folder of the Alembic revisions."""
    version_table: str
    head: str
    """The revision that the code expects."""
    revisions: frozenset[str]
    """All revisions that the code knows."""
