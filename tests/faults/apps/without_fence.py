"""`breakable` over stores whose settlements do not look at the token."""

from dataclasses import replace
from typing import Any

from breakable import app

from backburner.stores.postgres.queries import Queries as PostgresQueries
from backburner.stores.sqlite.queries import Queries as SqliteQueries

__all__ = ["app"]

FENCE = " AND jobs.token = s.token"


def without_fence(kind: Any) -> None:
    """Leave the fence out of both statements that settle."""
    load = kind.load

    def load_without() -> Any:
        queries = load()
        assert FENCE in queries.settle_jobs
        assert FENCE in queries.finish_jobs
        return replace(
            queries,
            settle_jobs=queries.settle_jobs.replace(FENCE, ""),
            finish_jobs=queries.finish_jobs.replace(FENCE, ""),
        )

    kind.load = load_without


without_fence(SqliteQueries)
without_fence(PostgresQueries)
