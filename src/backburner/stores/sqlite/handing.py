"""
Steps that go straight from whoever releases them to whoever claims next.

A worker settles what it did and claims anew in one transaction. Those of the steps that
are released in it which that claim would take before all others are handed to it right
away: it comes to the same as to queue and to claim them, for one write instead of two,
and what they need is at hand.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from backburner.domain.jobs.job import Claim, Instant
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.stores.shared.consequences import InternalTx, need_of
from backburner.stores.shared.flows import as_needs

Claiming = tuple[str, str, Sequence[ClaimRequest], Instant]
"""A claim: the worker, its token, what it wants, and when."""
NEEDS = Claim._fields.index("needs")


class HandingTx(InternalTx, Protocol):
    """A transaction that knows who may claim."""

    def gates(self, worker: str) -> Collection[str] | None:
        """Return the queues that have a gate; `None` if the worker is not enlisted."""
        ...


@dataclass(slots=True)
class NextClaim:
    """The claim that runs next in a transaction."""

    ask: Claiming
    settled: Sequence[Settlement]
    """What is settled before it."""
    claims: list[Claim] = field(default_factory=list)
    """What it was handed."""


def hand_on(
    tx: HandingTx, next_claim: NextClaim, waiting: Mapping[int, int], at: Instant
) -> list[int]:
    """
    Claim those who wait, each for the step beside it, if they are next anyway.

    Return each one's flow.
    """
    worker, token, claim_requests, now = next_claim.ask
    gated = tx.gates(worker) if waiting and at <= now else None
    if gated is None:
        return []
    ended = {settlement.seq: settlement for settlement in next_claim.settled}
    for queue, limit, _ in claim_requests:
        if queue in gated or limit < len(waiting):
            continue  # which of them may start is for the claim to say
        first = tx.rows(tx.queries.first_queued, queue, now)
        rows = tx.rows(
            tx.queries.hand_on_jobs,
            *(token, worker, now, queue, at, tx.array(waiting)),
            *(first[0] if first else (None, None, None)),
        )
        next_claim.claims += _claims(tx, ended, waiting, rows)
        if len(next_claim.claims) == len(waiting):
            break
    if next_claim.claims:
        seqs = tx.array([claim.seq for claim in next_claim.claims])
        tx.rows(tx.queries.insert_handed_events, seqs)
        tx.rows(tx.queries.insert_start_events, seqs)
    return [claim.flow for claim in next_claim.claims if claim.flow is not None]


def _claims(
    tx: HandingTx,
    ended: Mapping[int, Settlement],
    waiting: Mapping[int, int],
    rows: Sequence[Any],
) -> list[Claim]:
    """Make claims of rows; only who needs several has to have them read."""
    several = [row[0] for row in rows if row[NEEDS] > 1]
    read = tx.rows(tx.queries.list_needs, tx.array(several)) if several else ()
    given = as_needs(read)
    for row in rows:
        if row[NEEDS] == 1:
            given[row[0]] = [need_of(ended[waiting[row[0]]])]
    return [Claim(*(*row, given[row[0]])) for row in rows]
