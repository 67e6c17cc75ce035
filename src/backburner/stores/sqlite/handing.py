"""
Passes released steps directly to the next claim.

A worker settles its jobs and claims new ones in one transaction. If that claim would
take some of the steps that the settlement releases before all other jobs, they are
passed to it directly. The result is the same as if they were queued and claimed, with
one write instead of two, and with their prerequisites' results at hand.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from backburner.domain.jobs.job import Claim, Instant
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.stores.shared.consequences import InternalTx, need_of
from backburner.stores.shared.flows import as_needs

Claiming = tuple[str, str, Sequence[ClaimRequest], Instant]
"""A claim: the worker, its token, its requests, and the time."""
NEEDS = Claim._fields.index("needs")


class HandingTx(InternalTx, Protocol):
    """A transaction that knows the limits of queues."""

    def gates(self, worker: str) -> Collection[str] | None:
        """Return the queues with limits; `None` if the worker is not enlisted."""
        ...


@dataclass(slots=True)
class NextClaim:
    """The claim that runs next in a transaction."""

    ask: Claiming
    settled: Sequence[Settlement]
    """What is settled before it."""
    claims: list[Claim] = field(default_factory=list)
    """The jobs that were passed to it."""


def hand_on(
    tx: HandingTx, next_claim: NextClaim, waiting: Mapping[int, int], at: Instant
) -> list[int]:
    """
    Claim released steps that the next claim would take first.

    `waiting` are steps with the step that released them. Return the flow of each one.
    """
    worker, token, claim_requests, now = next_claim.ask
    gated = tx.gates(worker) if waiting and at <= now else None
    if gated is None:
        return []
    ended = {settlement.seq: settlement for settlement in next_claim.settled}
    for queue, limit, _ in claim_requests:
        if queue in gated or limit < len(waiting):
            continue  # the limits of the queue are checked by the claim
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
    """Convert rows to claims; only steps with several prerequisites are looked up."""
    several = [row[0] for row in rows if row[NEEDS] > 1]
    read = tx.rows(tx.queries.list_needs, tx.array(several)) if several else ()
    given = as_needs(read)
    for row in rows:
        if row[NEEDS] == 1:
            given[row[0]] = [need_of(ended[waiting[row[0]]])]
    return [Claim(*(*row, given[row[0]])) for row in rows]
