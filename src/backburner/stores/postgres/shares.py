"""
Shares on PostgreSQL: taken by a statement that commits at once, before or after.

No row of theirs is locked while something durable is written. Whoever dies in between
leaves a gap in a share's virtual time, or has a little more of it than its due.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from backburner.domain.jobs.job import NewJob
from backburner.domain.queues.fairness import Place, Share, by_share, costs, ranks
from backburner.ports.store.jobs import Move
from backburner.stores.postgres.database import as_ours
from backburner.stores.postgres.pipe import Pipe
from backburner.stores.postgres.queries import Queries
from backburner.stores.shared.sharing import ended_waiting, unused


@asynccontextmanager
async def _afterwards() -> AsyncIterator[None]:
    """Let it get lost if the store fails: what it is for stands."""
    try:
        yield
    except Exception as error:
        if as_ours(error) is None:
            raise


class Shares:
    """What shares are given and what they owe, over a pipe."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def rank(self, pipe: Pipe, jobs: Sequence[NewJob]) -> list[int] | None:
        """Give new jobs their places; `None` if a cap is to be kept."""
        shares = by_share(jobs)
        rows = await self._take(pipe, costs(jobs, shares), capped=False)
        if len(rows) < len(shares):
            return None
        places = {Share(*row[:4]): Place(*row[4:]) for row in rows}
        return ranks(jobs, shares, places)

    async def pay(self, pipe: Pipe, owed: Mapping[Share, int]) -> None:
        """Take what is owed, or give it back, after what it is for was stored."""
        if owed:
            async with _afterwards():
                await self._take(pipe, owed, capped=True)

    async def pay_all(
        self, pipe: Pipe, asks: Sequence[Mapping[Share, int]]
    ) -> Sequence[None]:
        """Do so for many callers at once."""
        total: Counter[Share] = Counter()
        for owed in asks:
            total.update(owed)
        await self.pay(pipe, total)
        return [None] * len(asks)

    async def forgo(
        self, pipe: Pipe, moves: Sequence[Move], moved: Collection[int]
    ) -> None:
        """Give shares back what jobs took that ended while they waited."""
        if ended := ended_waiting(moves, moved):
            async with _afterwards():
                rows = await pipe.rows(self._queries.list_estimates, ended)
                await self.pay(pipe, unused(rows))

    async def _take(
        self, pipe: Pipe, owed: Mapping[Share, int], *, capped: bool
    ) -> Sequence[Any]:
        asked = [list(c) for c in zip(*((*s, n) for s, n in owed.items()), strict=True)]
        return await pipe.rows(self._queries.take_shares, *asked, capped)
