"""`breakable` over a PostgreSQL store that does not name the index it relies on."""

import re
from dataclasses import replace

from breakable import app

from backburner.stores.postgres.queries import Queries

__all__ = ["app"]

load = Queries.load


def load_without_index() -> Queries:
    """Insert whatever comes: the statement could not run without the index."""
    queries = load()
    text, count = re.subn(
        r"ON CONFLICT .*?DO NOTHING", "", queries.insert_jobs, flags=re.DOTALL
    )
    assert count == 1
    return replace(queries, insert_jobs=text)


Queries.load = load_without_index  # type: ignore[method-assign]
