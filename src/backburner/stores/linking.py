"""
What a job's end means to others, in the transaction that ends it.

Steps that wait for it are released or given up, its flow ends with its last step, and
whoever is to be told gets a delivery. Both databases run this; what differs between
them is in their statements.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from backburner.domain import transitions
from backburner.domain.delivery import Ended, delivery
from backburner.domain.job import Instant, JobState, Link, NewJob, Submitted
from backburner.domain.transitions import Change
from backburner.ports.store import Move, Settlement
from backburner.stores.ledger import LedgerTx, close
from backburner.stores.settling import error_json, event_json
from backburner.stores.sharing import SharingTx, forgo

Telling = tuple[int, str, Instant, str | None]
"""A job's key, and the type, time and data of its event."""


class End(NamedTuple):
    """A linked job that ended in this transaction."""

    seq: int
    link: Link
    change: Change
    was_active: bool
    """Whether it waited for no other step."""


class LinkTx(LedgerTx, SharingTx, Protocol):
    """A transaction of either database."""

    @property
    def settling(self) -> int | None:
        """The job whose body runs: it has ended, its link is not settled yet."""
        ...

    def release(
        self, done: Collection[int], failed: Collection[int], at: Instant
    ) -> Sequence[int]:
        """Count down what waits for steps, and tell; return each one's flow."""
        ...

    def conclude(
        self, ended: Mapping[int, int], troubled: Collection[int], at: Instant
    ) -> Sequence[Any]:
        """
        Count flows down, by how many fewer of their steps are active.

        Those in trouble have a step that did not succeed. Tell of those that are over,
        and return what makes an `Ended` of each.
        """
        ...

    def insert(self, jobs: Sequence[NewJob]) -> list[int]:
        """Store jobs that have no idempotency key; return their keys."""
        ...

    def connect(self, edges: Sequence[tuple[int, int, bool]]) -> None:
        """Store edges: prerequisite, dependent, and whether it continues."""
        ...

    def move(self, moves: Sequence[Move]) -> Collection[int]:
        """Move jobs that are not running; return the keys of those that were."""
        ...

    def tell(self, events: Sequence[Telling]) -> None:
        """Note events of jobs whose counters were raised."""
        ...

    def submit(
        self, jobs: Sequence[NewJob], *, capped: bool = True
    ) -> Sequence[Submitted]:
        """Store jobs; if `capped`, as many as may wait."""
        ...


def ends(
    asks: Sequence[Settlement] | Sequence[Move], applied: Collection[int]
) -> list[End]:
    """Return the linked jobs among those asked for that ended."""
    return [
        End(ask.seq, ask.link, ask.change, _was_active(ask))
        for ask in asks
        if ask.link is not None and ask.seq in applied and ask.change.to.is_final
    ]


def _was_active(ask: Settlement | Move) -> bool:
    return isinstance(ask, Settlement) or ask.state is not JobState.BLOCKED


def settle_links(tx: LinkTx, ends: Sequence[End]) -> None:
    """Do what the ends of jobs mean to others."""
    if not ends:
        return
    at = max(end.change.at for end in ends)
    calling = [end.seq for end in ends if end.link.calls_back]
    steps = [end for end in ends if end.link.flow is not None]
    held = {e.seq: _is_done(e) for e in ends if e.link.holds}
    left: Counter[int] = Counter()
    if steps:
        given_up = _advance(tx, steps, left, at)
        calling += given_up
        held |= dict.fromkeys(given_up, False)
        tx.hit("advance.released")
    troubled = {
        end.link.flow
        for end in steps
        if end.link.flow is not None and end.change.to is not JobState.SUCCEEDED
    }
    deliver(tx, callers_of(tx, calling) + conclude(tx, left, troubled, at), at)
    tx.hit("advance.told")
    close(tx, held)


def _is_done(end: End) -> bool:
    return end.change.to is JobState.SUCCEEDED


def _advance(
    tx: LinkTx, ends: Sequence[End], left: Counter[int], at: Instant
) -> list[int]:
    """
    Release whoever waited for these steps; return those that were given up.

    `left` takes how many fewer steps of each flow are active. A flow of which as many
    begin as end is not written.
    """
    left.update(e.link.flow for e in ends if e.was_active and e.link.flow is not None)
    done = [e.seq for e in ends if _is_done(e)]
    failed = [e.seq for e in ends if not _is_done(e)]
    left.subtract(release(tx, done, failed, at))
    given_up: list[int] = []
    while failed:
        failed = give_up(tx, failed, at)
        given_up += failed
        if failed:
            left.subtract(release(tx, [], failed, at))
    return given_up


def release(
    tx: LinkTx, done: Collection[int], failed: Collection[int], at: Instant
) -> Counter[int]:
    """
    Count down what the dependents of steps wait for; the last one queues them.

    Return how many were, by flow.
    """
    return Counter(tx.release(done, failed, at))


def give_up(tx: LinkTx, failed: Sequence[int], at: Instant) -> list[int]:
    """End the steps that cannot run without one of these; return them."""
    change = transitions.give_up(now=at)
    error, code = error_json(change), transitions.DEPENDENCY_FAILED
    rows = tx.rows(tx.queries.cancel_dependents, tx.array(failed), at, error, code)
    lost = sorted(seq for (seq,) in rows)
    told = event_json(change)
    tx.tell([(seq, change.event, at, told) for seq in lost])
    forgo(tx, lost)
    return lost


def deliver(tx: LinkTx, told: Sequence[Ended], at: Instant) -> None:
    """Make the jobs that tell of ends."""
    if told:
        tx.submit([delivery(ended, at) for ended in told], capped=False)


def callers_of(tx: LinkTx, seqs: Collection[int]) -> list[Ended]:
    """Return those of the jobs that have somebody to tell."""
    if not seqs:
        return []
    return [Ended(*row) for row in tx.rows(tx.queries.list_callbacks, tx.array(seqs))]


def conclude(
    tx: LinkTx, ended: Mapping[int, int], troubled: Collection[int], at: Instant
) -> list[Ended]:
    """Count flows down; end those that are over, return those with a callback."""
    flows = sorted({*troubled, *(flow for flow, n in ended.items() if n)})
    written = {flow: ended.get(flow, 0) for flow in flows}
    return over(tx, written, at, troubled)


def over(
    tx: LinkTx,
    ended: Mapping[int, int],
    at: Instant,
    troubled: Collection[int] = (),
) -> list[Ended]:
    """Do the same, also for flows that never had a step."""
    rows = tx.conclude(ended, troubled, at) if ended else ()
    told = [Ended(*row) for row in rows]
    return [flow for flow in told if flow.callback is not None]
