"""Fair ranks and the cap on waiting jobs, on both databases."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import orjson
import sqlalchemy as sa

from backburner.domain.errors import TooManyWaiting
from backburner.domain.jobs.job import WAITING, NewJob
from backburner.domain.queues.fairness import (
    Place,
    Share,
    by_share,
    correction,
    cost,
    costs,
    ranks,
    share_of,
    span,
    take,
)
from backburner.ports.store.jobs import Move, Settlement
from backburner.ports.store.transactions import Tx
from backburner.stores.tables import fronts
from backburner.stores.tables import shares as share_table

f, s = fronts.c, share_table.c
LINE = (s.queue == f.queue) & (s.priority == f.priority)
PRUNED = 1_000
"""How many shares are deleted at a time."""


class SharingTx(Protocol):
    """A transaction that can read and change shares."""

    @property
    def queries(self) -> Any:
        """The statements of the database."""
        ...

    def rows(self, statement: str, *parameters: Any) -> Sequence[Any]:
        """Run a statement of the database and return its rows."""
        ...

    def array(self, keys: Collection[int]) -> Any:
        """Convert keys for the database's statements."""
        ...

    def standing(self, shares: Collection[Share]) -> Sequence[Any]:
        """
        Return each share with the front of its line and its finish.

        The stored weights and cap of its queue are included.
        """
        ...

    def owe(self, owed: Mapping[Share, int]) -> None:
        """Charge shares for more cost than they were placed for, or refund them."""
        ...


class Taken(NamedTuple):
    """The positions of shares, to be stored with their jobs."""

    places: dict[Share, Place]
    caps: dict[Share, int]
    """The maximum number of waiting jobs, for shares in queues with a cap."""


def rank(tx: SharingTx, new: Sequence[NewJob]) -> tuple[list[int], Taken]:
    """Rank new jobs; those of a capped queue get their share, to be counted."""
    shares = by_share(new)
    taken = place(tx, costs(new, shares))
    for share in taken.caps:
        for index in shares[share]:
            new[index].share = share.name
    return ranks(new, shares, taken.places), taken


def place(tx: SharingTx, owed: Mapping[Share, int]) -> Taken:
    """Charge virtual time to shares, or refund it; return their positions."""
    taken = Taken({}, {})
    for share, front, finish, weights, waiting in tx.standing(owed):
        weight = orjson.loads(weights).get(share.name, 1) if weights else 1
        taken.places[share] = take(front, finish, span(owed[share], weight))
        if waiting is not None:
            taken.caps[share] = waiting
    return taken


def check_waiting(
    tx: SharingTx, caps: Mapping[Share, int], stored: Sequence[NewJob]
) -> None:
    """Refuse jobs that were just stored if their share exceeds its cap."""
    new = Counter(capped(share) for share in map(share_of, stored) if share in caps)
    for share, cap in caps.items():
        added = new.pop(capped(share), 0)
        if not added:
            continue
        [(count,)] = tx.rows(tx.queries.count_waiting, *capped(share), cap + added + 1)
        if count > cap:
            raise TooManyWaiting(share.queue, depth=count - added, cap=cap)


def capped(share: Share) -> tuple[str, str, str]:
    """Return the key of a cap: a share with all priorities together."""
    return share.queue, share.tenant, share.name


def refund(known: Sequence[NewJob]) -> dict[Share, int]:
    """Return the refunds for jobs that existed already."""
    owed = costs(known, by_share(known))
    return {share: -total for share, total in owed.items()}


def used_tokens(
    settlements: Sequence[Settlement], applied: Collection[int]
) -> dict[int, int]:
    """Return the tokens that attempts used, by job, where usage is known."""
    return {
        s.seq: sum(call.tokens for call in s.usage)
        for s in settlements
        if s.usage and s.seq in applied
    }


def corrections(
    estimates: Sequence[Any], used: Mapping[int, int], over: Collection[int]
) -> dict[Share, int]:
    """Return what shares owe after attempts that used tokens; `over`: ended jobs."""
    owed: Counter[Share] = Counter()
    for seq, *share, tokens, _ in estimates:
        is_over = seq in over
        owed[Share(*share)] += correction(tokens, used[seq], is_over=is_over)
    return owed


def forgo(tx: SharingTx, ended: Collection[int]) -> None:
    """Refund shares for jobs that ended while they waited."""
    if ended:
        tx.owe(unused(tx.rows(tx.queries.list_estimates, tx.array(ended))))


def unused(estimates: Sequence[Any]) -> dict[Share, int]:
    """Return the refunds for jobs that never ran."""
    owed: Counter[Share] = Counter()
    for _, *share, tokens, attempt in estimates:
        if not attempt:
            owed[Share(*share)] -= cost(tokens)
    return owed


def ended_waiting(moves: Sequence[Move], moved: Collection[int]) -> list[int]:
    """Return the jobs that ended while they waited."""
    return [
        m.seq
        for m in moves
        if m.state in WAITING and m.change.to.is_final and m.seq in moved
    ]


def prune(tx: Tx) -> None:
    """Delete shares that would start at the front anyway."""
    # Do not also delete those without waiting jobs: PostgreSQL assigns a position
    # before it stores the jobs.
    is_behind = sa.exists().where(LINE, s.finish <= f.front)
    keys = (s.queue, s.priority, s.tenant, s.name)
    idle = (
        sa.select(*keys)
        .where(is_behind)
        .limit(PRUNED)
        # Rows that a transaction is using are skipped, so nobody waits.
        .with_for_update(skip_locked=True)
    )
    tx.connection.execute(
        share_table.delete().where(sa.tuple_(*keys).in_(idle.correlate(None)))
    )
