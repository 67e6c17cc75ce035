"""`flowing` over stores that advance flows after the commit that ends a step."""

from collections.abc import Sequence
from typing import Any

from flowing import app

from backburner.domain.jobs.transitions import Change
from backburner.ports.store.jobs import Settlement
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared.consequences import ends, settle_consequences
from backburner.stores.sqlite.store import SqliteStore

__all__ = ["app"]


def advance_later(kind: Any) -> None:
    """Have a store settle in one transaction and advance in another."""
    settle = kind.settle

    async def settle_first(
        store: Any, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        bare = [settlement._replace(consequences=None) for settlement in settlements]
        applied: Sequence[Change | None] = await settle(store, bare)
        ended = [
            settlement._replace(change=change)
            for settlement, change in zip(settlements, applied, strict=True)
            if change is not None
        ]
        over = ends(ended, {settlement.seq for settlement in ended})
        await store.internal_transaction(lambda tx: settle_consequences(tx, over))
        return applied

    kind.settle = settle_first


advance_later(SqliteStore)
advance_later(PostgresStore)
