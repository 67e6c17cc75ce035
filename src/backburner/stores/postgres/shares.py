"""
Fair shares on PostgreSQL, updated by statements that commit on their own.

No row of theirs is locked while something durable is written. A process that dies in
between leaves a gap in a share's virtual time, or the share has a little too much.
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
    """Ignore an error of the store: the main operation has committed."""
    try:
        yield
    except Exception as error:
        if as_ours(error) is None:
            raise


class Shares:
    """Assigns and corrects the virtual time of shares, over a pipe."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def rank(self, pipe: Pipe, jobs: Sequence[NewJob]) -> list[int] | None:
        """Rank new jobs; `None` if a cap applies to them."""
        shares = by_share(jobs)
        rows = await self._take(pipe, costs(jobs, shares), capped=False)
        if len(rows) < len(shares):
            return None
        places = {Share(*row[:4]): Place(*row[4:]) for row in rows}
        return ranks(jobs, shares, places)

    async def pay(self, pipe: Pipe, owed: Mapping[Share, int]) -> None:
        """Charge or refund shares after the main operation was committed."""
        if owed:
            async with _afterwards():
                await self._take(pipe, owed, capped=True)

    async def pay_all(
        self, pipe: Pipe, asks: Sequence[Mapping[Share, int]]
    ) -> Sequence[None]:
        """Do the same for several callers at once."""
        total: Counter[Share] = Counter()
        for owed in asks:
            total.update(owed)
        await self.pay(pipe, total)
        return [None] * len(asks)

    async def forgo(
        self, pipe: Pipe, moves: Sequence[Move], moved: Collection[int]
    ) -> None:
        """Refund shares for jobs that ended while they waited."""
        if ended := ended_waiting(moves, moved):
            async with _afterwards():
                rows = await pipe.rows(self._queries.list_estimates, ended)
                await self.pay(pipe, unused(rows))

    async def _take(
        self, pipe: Pipe, owed: Mapping[Share, int], *, capped: bool
    ) -> Sequence[Any]:
        asked = [list(c) for c in zip(*((*s, n) for s, n in owed.items()), strict=True)]
        return await pipe.rows(self._queries.take_shares, *asked, capped)
