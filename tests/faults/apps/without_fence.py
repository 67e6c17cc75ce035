"""`breakable` over a store whose settlements do not look at the token."""

from dataclasses import replace

from breakable import app

from backburner.stores.sqlite.queries import Queries

__all__ = ["app"]

FENCE = " AND jobs.token = s.token"

load = Queries.load


def load_without_fence() -> Queries:
    """Leave the fence out of both statements that settle."""
    queries = load()
    assert FENCE in queries.settle_jobs
    assert FENCE in queries.finish_jobs
    return replace(
        queries,
        settle_jobs=queries.settle_jobs.replace(FENCE, ""),
        finish_jobs=queries.finish_jobs.replace(FENCE, ""),
    )


Queries.load = load_without_fence  # type: ignore[method-assign]
