"""All tables of `documents`."""

from collections.abc import Sequence

import sqlalchemy as sa

from backburner_apps.documents import chunk_tables


def all_tables() -> Sequence[sa.Table]:
    """Return the tables of batches, files and chunks, for `backburner move`."""
    return chunk_tables.chunks.metadata.sorted_tables
