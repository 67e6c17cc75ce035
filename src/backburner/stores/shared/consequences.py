"""
The consequences of the end of a job, in the transaction that ends it.

Its dependents are released or ended, its flow ends with its last step, and deliveries
are submitted. Both databases run this code; only their statements differ.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

from backburner.domain.jobs import transitions
from backburner.domain.jobs.completion import completion_of, followers
from backburner.domain.jobs.job import (
    Consequences,
    Instant,
    JobState,
    Need,
    NewJob,
    Submitted,
)
from backburner.domain.jobs.transitions import Change
from backburner.domain.webhooks.delivery import Ended, Result
from backburner.ports.store.jobs import Move, Settlement
from backburner.stores.shared.ledger import LedgerTx, close
from backburner.stores.shared.settling import error_json, event_json
from backburner.stores.shared.sharing import SharingTx, forgo
from backburner.stores.shared.totals import count_ends

Telling = tuple[int, str, Instant, str | None]
"""A job's key, and the type, time and data of its event."""


CALLBACK = Ended._fields.index("callback")
End = tuple[int, Consequences, Change, bool]
"""An ended job with consequences, and whether it had no prerequisites."""


class InternalTx(LedgerTx, SharingTx, Protocol):
    """A transaction of either database."""

    @property
    def settling(self) -> Collection[int]:
        """The jobs whose bodies are running: they ended, but not their consequences."""
        ...

    def release(
        self, done: Collection[int], failed: Collection[int], at: Instant
    ) -> Sequence[int]:
        """Count down the dependents of steps and add events; return the flows."""
        ...

    def conclude(
        self, ended: Mapping[int, int], troubled: Collection[int], at: Instant
    ) -> Sequence[Any]:
        """
        Count down the active steps of flows.

        The flows in `troubled` have a step that did not succeed. Add events for flows
        that ended, and return the columns of an `Ended` for each of them.
        """
        ...

    def lock_groups(
        self, *, batches: Collection[int] = (), flows: Collection[int] = ()
    ) -> None:
        """Lock batches, then flows, by key; call this before locking their jobs."""
        ...

    def lock_jobs(self, seqs: Collection[int]) -> None:
        """Lock jobs by key, in any state."""
        ...

    def insert(self, jobs: Sequence[NewJob]) -> list[int]:
        """Store jobs without idempotency keys; return their keys."""
        ...

    def connect(self, edges: Sequence[tuple[int, int, bool]]) -> None:
        """Store edges: prerequisite, dependent, and whether it continues."""
        ...

    def move(self, moves: Sequence[Move]) -> Collection[int]:
        """Move jobs that are not running; return the keys of those that moved."""
        ...

    def tell(self, events: Sequence[Telling]) -> None:
        """Insert events of jobs whose counters were incremented."""
        ...

    def submit(
        self, jobs: Sequence[NewJob], *, capped: bool = True
    ) -> Sequence[Submitted]:
        """Store jobs; if `capped`, refuse more than the cap on waiting jobs allows."""
        ...


def ends(
    asks: Sequence[Settlement] | Sequence[Move], applied: Collection[int]
) -> list[End]:
    """Return the jobs with consequences that have ended."""
    return [
        (
            ask.seq,
            ask.consequences,
            ask.change,
            isinstance(ask, Settlement) or ask.state is not JobState.BLOCKED,
        )
        for ask in asks
        if ask.consequences is not None
        and ask.seq in applied
        and ask.change.to.is_final
    ]


def need_of(ended: Settlement) -> Need:
    """Return the result that a succeeded step passes to its dependents."""
    assert ended.consequences is not None  # noqa: S101 - tells the type checker
    _, _, _, job_id, step = ended.consequences
    return Need(step, job_id, JobState.SUCCEEDED, ended.change.output, None)


def settle_consequences(tx: InternalTx, ends: Sequence[End]) -> None:
    """
    Apply the consequences of ended jobs.

    A flow whose number of active steps does not change is not written.
    """
    if not ends:
        return
    at = max(change.at for _, _, change, _ in ends)
    calling: list[int] = []
    held: dict[int, bool] = {}
    done: list[int] = []
    failed: list[int] = []
    left: defaultdict[int, int] = defaultdict(int)
    troubled: set[int] = set()
    for seq, (flow, calls_back, holds, _, _), change, was_active in ends:
        is_done = change.to is JobState.SUCCEEDED
        if calls_back:
            calling.append(seq)
        if holds:
            held[seq] = is_done
        if flow is not None:
            left[flow] += was_active
            (done if is_done else failed).append(seq)
            if not is_done:
                troubled.add(flow)
    if done or failed:
        given_up = _advance(tx, done, failed, left, at)
        calling += given_up
        held |= dict.fromkeys(given_up, False)
        tx.hit("advance.released")
    deliver(tx, callers_of(tx, calling) + conclude(tx, left, troubled, at), at)
    tx.hit("advance.told")
    close(tx, held)


def _advance(
    tx: InternalTx,
    done: Sequence[int],
    failed: Sequence[int],
    left: MutableMapping[int, int],
    at: Instant,
) -> list[int]:
    """
    Release the dependents of these steps; return those that cannot run any more.

    `left` collects by how many the active steps of each flow decrease.
    """
    given_up: list[int] = []
    while done or failed:
        for flow in tx.release(done, failed, at):
            left[flow] -= 1
        done, failed = (), give_up(tx, failed, at) if failed else ()
        given_up += failed
    return given_up


def give_up(tx: InternalTx, failed: Sequence[int], at: Instant) -> list[int]:
    """End and return the steps that cannot run without one of these."""
    change = transitions.give_up(now=at)
    error, code = error_json(change), transitions.DEPENDENCY_FAILED
    rows = tx.rows(tx.queries.cancel_dependents, tx.array(failed), at, error, code)
    lost = sorted(seq for seq, _ in rows)
    count_ends(tx, [(queue, JobState.CANCELLED) for _, queue in rows])
    data = event_json(change)
    tx.tell([(seq, change.event, at, data) for seq in lost])
    forgo(tx, lost)
    return lost


def deliver(tx: InternalTx, ends: Sequence[Ended], at: Instant) -> None:
    """Submit the jobs that follow ends: deliveries and completions."""
    jobs = [job for ended in ends for job in followers(ended, at)]
    if jobs:
        tx.submit(jobs, capped=False)
        tx.hit("ended.followed")


def callers_of(tx: InternalTx, seqs: Collection[int]) -> list[Ended]:
    """Return the ends of those jobs that trigger another job."""
    if not seqs:
        return []
    keys = tx.array(seqs)
    ended = [Ended(*row) for row in tx.rows(tx.queries.list_callbacks, keys)]
    if not any(completion_of(one.callback) for one in ended):
        return ended
    rows = tx.rows(tx.queries.list_results, keys)
    results = {job_id: Result(*result) for job_id, *result in rows}
    return [one._replace(result=results[one.id]) for one in ended]


def conclude(
    tx: InternalTx, ended: Mapping[int, int], troubled: Collection[int], at: Instant
) -> list[Ended]:
    """Count down flows and end those that are done; return those with a callback."""
    flows = sorted({*troubled, *(flow for flow, n in ended.items() if n)})
    written = {flow: ended.get(flow, 0) for flow in flows}
    return over(tx, written, at, troubled)


def over(
    tx: InternalTx,
    ended: Mapping[int, int],
    at: Instant,
    troubled: Collection[int] = (),
) -> list[Ended]:
    """Like `conclude`, also for flows that may never have had a step."""
    rows = tx.conclude(ended, troubled, at) if ended else ()
    return [Ended(*row) for row in rows if row[CALLBACK] is not None]
