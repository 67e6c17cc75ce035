"""`breakable` over stores whose transactions of handlers do not look at the token."""

from dataclasses import replace
from typing import Any

from breakable import app

from backburner.stores.postgres.queries import Queries as PostgresQueries
from backburner.stores.sqlite.queries import Queries as SqliteQueries

__all__ = ["app"]


def without_claim(kind: Any, fence: str, instead: str) -> None:
    """Leave the token out of the statement that checks a claim."""
    load = kind.load

    def load_without() -> Any:
        queries = load()
        assert fence in queries.check_claim
        return replace(queries, check_claim=queries.check_claim.replace(fence, instead))

    kind.load = load_without


without_claim(SqliteQueries, "jobs.token = ?2 AND state = 'running'", "?2 <> ''")
without_claim(PostgresQueries, "token = $2 AND state = 'running'", "$2 <> ''")
