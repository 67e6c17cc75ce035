"""A line of schema revisions: the engine's own, or those of one application."""

from pathlib import Path
from typing import NamedTuple

PREFIX = "backburner_version_"
"""What the names of applications' version tables begin with."""


class History(NamedTuple):
    """Revisions that are applied in order, and the table that stores how far."""

    name: str
    """The application's name."""
    versions: Path
    """The folder of the Alembic revisions."""
    version_table: str
    head: str
    """The revision that the code expects."""
    revisions: frozenset[str]
    """All revisions that the code knows."""
