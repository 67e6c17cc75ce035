"""Fair ranks and the cap on waiting jobs, in transactions of both databases."""

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
"""How many shares are forgotten at a time."""


class SharingTx(Protocol):
    """A transaction that can say how shares stand."""

    @property
    def queries(self) -> Any:
        """The database's own statements."""
        ...

    def rows(self, statement: str, *parameters: Any) -> Sequence[Any]:
        """Run a statement of the database and return its rows."""
        ...

    def array(self, keys: Collection[int]) -> Any:
        """Write keys as the database's statements take them."""
        ...

    def standing(self, shares: Collection[Share]) -> Sequence[Any]:
        """
        Return how shares stand: each with its line's front and its finish.

        Its queue's weights and cap come with it, as they are stored.
        """
        ...

    def owe(self, owed: Mapping[Share, int]) -> None:
        """Have shares pay for more than they were given places for, or for less."""
        ...


class Taken(NamedTuple):
    """What is to be written once shares were given their places."""

    places: dict[Share, Place]
    caps: dict[Share, int]
    """How many jobs may wait, of shares in queues with a cap."""


def rank(tx: SharingTx, new: Sequence[NewJob]) -> tuple[list[int], Taken]:
    """Rank new jobs; those of a capped queue name their share, so that it counts."""
    shares = by_share(new)
    taken = place(tx, costs(new, shares))
    for share in taken.caps:
        for index in shares[share]:
            new[index].share = share.name
    return ranks(new, shares, taken.places), taken


def place(tx: SharingTx, owed: Mapping[Share, int]) -> Taken:
    """Give shares virtual time for what they owe, or take it back."""
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
    """Refuse jobs that were stored just now if too many of their share wait."""
    new = Counter(capped(share) for share in map(share_of, stored) if share in caps)
    for share, cap in caps.items():
        added = new.pop(capped(share), 0)
        if not added:
            continue
        [(count,)] = tx.rows(tx.queries.count_waiting, *capped(share), cap + added + 1)
        if count > cap:
            raise TooManyWaiting(share.queue, depth=count - added, cap=cap)


def capped(share: Share) -> tuple[str, str, str]:
    """Return what a cap is for: a share of all priorities together."""
    return share.queue, share.tenant, share.name


def refund(known: Sequence[NewJob]) -> dict[Share, int]:
    """Say what shares get back for jobs that were there already."""
    owed = costs(known, by_share(known))
    return {share: -total for share, total in owed.items()}


def used_tokens(
    settlements: Sequence[Settlement], applied: Collection[int]
) -> dict[int, int]:
    """Return what attempts used, by job: of those that held and that said so."""
    return {
        s.seq: sum(call.tokens for call in s.usage)
        for s in settlements
        if s.usage and s.seq in applied
    }


def corrections(
    estimates: Sequence[Any], used: Mapping[int, int], over: Collection[int]
) -> dict[Share, int]:
    """Say what shares owe after attempts that used tokens; `over`: jobs that ended."""
    owed: Counter[Share] = Counter()
    for seq, *share, tokens, _ in estimates:
        is_over = seq in over
        owed[Share(*share)] += correction(tokens, used[seq], is_over=is_over)
    return owed


def forgo(tx: SharingTx, ended: Collection[int]) -> None:
    """Give shares back what jobs took that ended while they waited."""
    if ended:
        tx.owe(unused(tx.rows(tx.queries.list_estimates, tx.array(ended))))


def unused(estimates: Sequence[Any]) -> dict[Share, int]:
    """Say what shares get back for jobs that never ran."""
    owed: Counter[Share] = Counter()
    for _, *share, tokens, attempt in estimates:
        if not attempt:
            owed[Share(*share)] -= cost(tokens)
    return owed


def ended_waiting(moves: Sequence[Move], moved: Collection[int]) -> list[int]:
    """Return the jobs that were moved from waiting to their end."""
    return [
        m.seq
        for m in moves
        if m.state in WAITING and m.change.to.is_final and m.seq in moved
    ]


def prune(tx: Tx) -> None:
    """Forget shares that would begin at the front anyway."""
    # Not also those of which nothing waits: on PostgreSQL a place is drawn before its
    # jobs are stored.
    is_behind = sa.exists().where(LINE, s.finish <= f.front)
    keys = (s.queue, s.priority, s.tenant, s.name)
    found = (
        sa.select(*keys)
        .where(is_behind)
        .limit(PRUNED)
        # Whoever takes from a share now goes first: nobody waits for anybody.
        .with_for_update(skip_locked=True)
    )
    tx.connection.execute(
        share_table.delete().where(sa.tuple_(*keys).in_(found.correlate(None)))
    )
