"""
The store's operations inside a transaction, each for many callers at once.

Each function takes the arguments of all waiting callers and returns one result for
each, in order. `writer` calls them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain, starmap
from typing import Any

from backburner.domain.errors import BudgetExhausted
from backburner.domain.events.event import PROGRESS
from backburner.domain.jobs.job import Claim, Instant, JobState, NewJob, Submitted
from backburner.domain.jobs.step import StepResult
from backburner.domain.jobs.transitions import Change
from backburner.domain.queues.queue import Gate, admit, count
from backburner.ports.clock import Clock
from backburner.ports.store.events import Note
from backburner.ports.store.jobs import ClaimRequest, Move, Settlement
from backburner.ports.store.maintenance import Retention
from backburner.ports.store.workers import WorkerLost
from backburner.stores.shared import lanes, steps
from backburner.stores.shared.consequences import ends, settle_consequences
from backburner.stores.shared.flows import as_needs
from backburner.stores.shared.ledger import submit_each
from backburner.stores.shared.row_values import settle_values
from backburner.stores.shared.settling import (
    KEY_LIFETIME_MS,
    as_given,
    as_json,
    event_json,
    in_turn,
    turns,
    wait_json,
)
from backburner.stores.shared.sharing import (
    corrections,
    ended_waiting,
    forgo,
    used_tokens,
)
from backburner.stores.shared.slots import UnusedSlots
from backburner.stores.shared.totals import count_ends, count_successes
from backburner.stores.shared.usages import book_settled
from backburner.stores.sqlite.database import is_unavailable
from backburner.stores.sqlite.handing import NEEDS, Claiming, NextClaim
from backburner.stores.sqlite.transaction import Transaction, savepoint


def submit(
    tx: Transaction, batches: Sequence[Sequence[NewJob]]
) -> Sequence[Sequence[Submitted] | BudgetExhausted]:
    """Store the jobs of all callers; a caller over its budget gets its exception."""
    return submit_each(tx, batches)


def claim(tx: Transaction, asks: Sequence[Claiming]) -> Sequence[Sequence[Claim]]:
    """Claim queued jobs for all workers."""
    next_claim, tx.next_claim = tx.next_claim, None
    handed = next_claim.claims if next_claim is not None else ()
    return [_claim(tx, *ask, handed) for ask in asks]


def _claim(
    tx: Transaction,
    worker: str,
    token: str,
    claim_requests: Sequence[ClaimRequest],
    now: Instant,
    handed: Sequence[Claim],
) -> Sequence[Claim]:
    """Claim a worker's requests, in addition to the steps passed to it directly."""
    gated = tx.gates(worker)
    if gated is None:
        raise WorkerLost
    claims: list[Claim] = []
    unused = UnusedSlots()
    for request in claim_requests:
        queue, wanted = request.queue, unused.limit_of(request)
        before = [claim for claim in handed if claim.queue == queue]
        left = wanted - len(before)
        take = _claim_gated if queue in gated else _take
        taken = take(tx, worker, token, (queue, left), now) if left else ()
        claims += in_turn((*before, *taken)) if before else taken
        unused.took(request, wanted, len(before) + len(taken))
    for queue, wanted in unused.left():
        take = _claim_gated if queue in gated else _take
        taken = take(tx, worker, token, (queue, wanted), now)
        claims += taken
        unused.took_more(len(taken))
    if claims:
        # Ranks in a line increase, so the last one remains as the highest.
        lines = {(claim.queue, claim.priority): claim.rank for claim in claims}
        fronts = [(*line, front) for line, front in lines.items()]
        tx.driver.executemany(tx.queries.advance_fronts, fronts)
    return claims


def _take(
    tx: Transaction, worker: str, token: str, wanted: tuple[str, int], now: Instant
) -> Sequence[Claim]:
    """Claim up to a number of jobs of a queue."""
    rows = tx.rows(tx.queries.claim_jobs, token, worker, now, *wanted)
    steps = [row[0] for row in rows if row[NEEDS]]
    if steps:
        needs = as_needs(tx.rows(tx.queries.list_needs, tx.array(steps)))
        rows = [(*row, needs.get(row[0], ())) for row in rows]
    if rows:
        seqs = as_json([row[0] for row in rows])
        tx.driver.execute(tx.queries.insert_start_events, (seqs,))
    # RETURNING does not guarantee an order.
    return in_turn(starmap(Claim, rows))


def _claim_gated(
    tx: Transaction, worker: str, token: str, wanted: tuple[str, int], now: Instant
) -> Sequence[Claim]:
    """Claim what the queue's limits allow, and count it."""
    queue, most = wanted
    gate = Gate(*tx.rows(tx.queries.read_gate, queue)[0])
    running = 0
    if gate.concurrency is not None:
        running = tx.rows(tx.queries.count_running, queue)[0][0]
    admission = admit(gate, wanted=most, running=running, now=now)
    taken: Sequence[Claim] = ()
    if admission.allowed:
        taken = _take(tx, worker, token, (queue, admission.allowed), now)
    if gate.rate is not None:
        waiting = bool(tx.rows(tx.queries.has_queued, queue, now))
        after = count(gate, admission, taken=len(taken), waiting=waiting)
        if after != gate:
            tx.driver.execute(tx.queries.mark_gate, (queue, *after[4:]))
    return taken


def settle(
    tx: Transaction, batches: Sequence[Sequence[Settlement]]
) -> Sequence[Sequence[Change | None]]:
    """Settle the jobs of all workers; of two settlements of a job the first wins."""
    total = sum(map(len, batches))
    return _in_turns(tx, batches, partial(_settle, total=total), otherwise=None)


def _settle(
    tx: Transaction, settlements: Sequence[Settlement], total: int
) -> dict[int, Change]:
    applied: dict[int, Change] = {}
    plain = [s for s in settlements if s.body is None]
    _apply_plain(tx, plain, applied)
    book_settled(tx, plain, applied)
    if len(plain) == total:  # otherwise more steps are released later
        tx.next_claim = _next_claim(tx, plain)
    settle_consequences(tx, ends(plain, applied))
    for settlement in settlements:
        if settlement.body is not None:
            _apply_with_body(tx, settlement, applied)
    if used := used_tokens(settlements, applied):
        over = {seq for seq, change in applied.items() if change.to.is_final}
        rows = tx.rows(tx.queries.list_estimates, tx.array(used))
        tx.owe(corrections(rows, used, over))
    return applied


def _next_claim(tx: Transaction, settlements: Sequence[Settlement]) -> NextClaim | None:
    """Return the claim that runs next, if it is the only one."""
    then, asks = tx.then or (None, ())
    return NextClaim(asks[0], settlements) if then is claim and len(asks) == 1 else None


def _in_turns(
    tx: Transaction,
    batches: Sequence[Sequence[Any]],
    apply: Callable[[Transaction, Sequence[Any]], Mapping[int, Any]],
    *,
    otherwise: Any,
) -> Sequence[Sequence[Any]]:
    """Apply requests; two requests for one job are applied one after the other."""
    asks = list(chain.from_iterable(batches))
    answers = [otherwise] * len(asks)
    for turn in turns(asks):
        for seq, answer in apply(tx, [asks[i] for i in turn.values()]).items():
            answers[turn[seq]] = answer
    return as_given(batches, answers)


def _apply_plain(
    tx: Transaction,
    settlements: Sequence[Settlement],
    applied: dict[int, Change],
) -> None:
    done = [s for s in settlements if s.change.to is JobState.SUCCEEDED]
    other = [s for s in settlements if s.change.to is not JobState.SUCCEEDED]
    settled = _finish(tx, done) | _put(tx, other)
    for s in settlements:
        if s.seq in settled:
            applied[s.seq] = s.change


def _finish(tx: Transaction, settlements: Sequence[Settlement]) -> set[int]:
    if not settlements:
        return set()
    at = max(s.change.at for s in settlements)
    rows = as_json([(s.seq, s.token, s.change.output) for s in settlements])
    ended = tx.rows(tx.queries.finish_jobs, rows, at)
    seqs = [row[0] for row in ended]
    tx.tell_states(seqs, at)
    count_successes(tx, [row[1] for row in ended])
    return set(seqs)


def _put(tx: Transaction, settlements: Sequence[Settlement]) -> set[int]:
    if not settlements:
        return set()
    rows = [(*settle_values(s), wait_json(s.change)) for s in settlements]
    came = tx.rows(tx.queries.settle_jobs, as_json(rows))
    settled = {row[0] for row in came}
    count_ends(tx, [row[1:] for row in came])
    tx.tell(
        [
            (s.seq, s.change.event, s.change.at, event_json(s.change))
            for s in settlements
            if s.seq in settled
        ]
    )
    return settled


def _apply_with_body(
    tx: Transaction, settlement: Settlement, applied: dict[int, Change]
) -> None:
    assert settlement.body is not None  # noqa: S101 - tells the type checker
    try:
        with savepoint(tx.driver):
            _apply_plain(tx, [settlement], applied)
            book_settled(tx, [settlement], applied)
            if settlement.seq in applied:
                with tx.settling_of(settlement.seq):
                    settlement.body(tx)
            settle_consequences(tx, ends([settlement], applied))
    except Exception as error:
        is_lost = not tx.driver.in_transaction or is_unavailable(error)
        if settlement.otherwise is None or is_lost:
            raise
        applied.pop(settlement.seq, None)
        change = settlement.otherwise(error)
        if change is None:
            return
        instead = settlement._replace(change=change, body=None, otherwise=None)
        _apply_plain(tx, [instead], applied)
        book_settled(tx, [instead], applied)
        settle_consequences(tx, ends([instead], applied))


def move(
    tx: Transaction, batches: Sequence[Sequence[Move]]
) -> Sequence[Sequence[bool]]:
    """Move jobs that are not running; of two moves of one job the first wins."""
    return _in_turns(tx, batches, _move, otherwise=False)


def _move(tx: Transaction, moves: Sequence[Move]) -> dict[int, bool]:
    moved = dict.fromkeys(tx.move(moves), True)
    forgo(tx, ended_waiting(moves, moved))
    settle_consequences(tx, ends(moves, moved))
    return moved


def promote(tx: Transaction, asks: Sequence[tuple[Instant, int]]) -> Sequence[int]:
    """Queue the jobs that are due."""
    return [_promote(tx, now, limit) for now, limit in asks]


def _promote(tx: Transaction, now: Instant, limit: int) -> int:
    seqs = [row[0] for row in tx.rows(tx.queries.promote_jobs, now, limit)]
    tx.tell_states(seqs, now)
    return len(seqs)


def report(tx: Transaction, batches: Sequence[Sequence[Note]]) -> Sequence[Any]:
    """Store progress and text of jobs that are still held."""
    return _in_turns(tx, batches, _report, otherwise=None)


def _report(tx: Transaction, notes: Sequence[Note]) -> dict[int, None]:
    rows = [
        (note.seq, note.token, note.n, note.data if note.type == PROGRESS else None)
        for note in notes
    ]
    reported = {row[0] for row in tx.rows(tx.queries.report_notes, as_json(rows))}
    events = [(o.seq, o.type, o.at, o.data) for o in notes if o.seq in reported]
    tx.driver.execute(tx.queries.insert_events, (as_json(events),))
    return {}


def save(
    tx: Transaction, batches: Sequence[Sequence[StepResult]]
) -> Sequence[Sequence[bool]]:
    """Store the results of steps of jobs that are still held."""
    rows = tx.save_steps([result for batch in batches for result in batch])
    return [steps.kept(batch, rows) for batch in batches]


def prune(
    tx: Transaction, asks: Sequence[tuple[Retention, Instant, int]]
) -> Sequence[Sequence[str]]:
    """Delete ended jobs after their retention, with their events."""
    return [_prune(tx, keep, now, limit) for keep, now, limit in asks]


def _prune(tx: Transaction, keep: Retention, now: Instant, limit: int) -> Sequence[str]:
    spans = {
        JobState.SUCCEEDED: keep.succeeded,
        JobState.FAILED: keep.failed,
        JobState.CANCELLED: keep.cancelled,
    }
    gone: list[Any] = []
    keyed = now - KEY_LIFETIME_MS
    for state, span in spans.items():
        horizon = now - span // timedelta(milliseconds=1)
        gone += tx.rows(tx.queries.delete_jobs, state, horizon, limit, keyed)
    seqs = as_json([seq for seq, _ in gone])
    tx.driver.execute(tx.queries.delete_events, (seqs,))
    tx.driver.execute(tx.queries.delete_steps, (seqs,))
    tx.driver.execute(tx.queries.delete_waits, (seqs,))
    return [job_id for _, job_id in gone]


def pace(
    tx: Transaction, asks: Sequence[tuple[Clock, lanes.Act]]
) -> Sequence[lanes.Answer]:
    """Take and return permits for all callers, in their order."""
    clock = asks[0][0]
    return lanes.perform(tx.connection, clock.now, [act for _, act in asks])
