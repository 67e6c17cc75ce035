"""A machine an hour ahead that judges leases by its own clock, not the store's."""

from dataclasses import replace

from an_hour_ahead import app

from backburner.stores.postgres.queries import Queries

__all__ = ["app"]

STORES = "clock_timestamp()"

load = Queries.load


def load_with_own_clock() -> Queries:
    """Read the lease by a clock that is an hour ahead."""
    queries = load()
    assert STORES in queries.remove_dead_workers
    own = f"({STORES} + interval '1 hour')"
    return replace(
        queries, remove_dead_workers=queries.remove_dead_workers.replace(STORES, own)
    )


Queries.load = load_with_own_clock  # type: ignore[method-assign]
