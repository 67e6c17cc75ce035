"""
The one auditor: checks, on a store at rest, that every promise was kept.

It believes two witnesses, the store's own rows and a ledger that the client kept, and
holds one against the other. Run it after the faults are over and all is quiet.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from backburner.domain import event
from backburner.domain.event import Event, attempts
from backburner.domain.job import Instant, JobState
from backburner.domain.transitions import ALLOWED, WORKER_LOST, Limits
from backburner.stores import tables
from backburner.stores.sqlite.database import Database

FREE = frozenset({"throttled", "scheduled", "stalled", "handed_back"})
"""Outcomes of an attempt that give it back."""


class Breach(NamedTuple):
    """A promise that was not kept."""

    invariant: str
    """Its number in the list of invariants, or a word."""
    job: str
    told: str


class Answer(NamedTuple):
    """What a client was told about one submit."""

    key: str
    body: str
    job: str | None
    """The id; `None` when the key was refused because of another body."""


class Reading(NamedTuple):
    """What one reader saw of a job over all its connections."""

    job: str
    seen: list[tuple[int, str]]
    """Number and type of each event, as they came."""
    is_over: bool
    """The stream ended by itself."""


@dataclass(slots=True)
class Ledger:
    """What the client knows for itself. Leave empty what it did not watch."""

    acknowledged: list[str] = field(default_factory=list)
    """Every id that was ever answered."""
    answers: list[Answer] = field(default_factory=list)
    """Every answer to a submit with an idempotency key."""
    effective: list[str] = field(default_factory=list)
    """Jobs whose handler writes one effect through `ctx.at_settlement`."""
    effects: list[tuple[str, int]] = field(default_factory=list)
    """The effects that are there now: job and generation."""
    readings: list[Reading] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    """`seq` of each event that a reader of the only owner's whole stream saw."""
    pruned: list[str] = field(default_factory=list)
    """Finished jobs that were deleted since."""

    def acknowledge(self, job: str, key: str | None = None, body: str = "") -> None:
        """Note that a submit was answered with this id."""
        self.acknowledged.append(job)
        if key is not None:
            self.answers.append(Answer(key, body, job))

    def refuse(self, key: str, body: str) -> None:
        """Note that a key was refused because it stands for another body."""
        self.answers.append(Answer(key, body, None))


class Row(NamedTuple):
    """What the auditor needs of a job's row."""

    seq: int
    id: str
    state: JobState
    generation: int
    attempt: int
    max_attempts: int
    crashes: int
    events: int
    run_at: Instant | None
    start_by: Instant | None
    deadline: Instant | None
    output: str | None
    error_code: str | None
    owner_key: tuple[str, str, str] | None


class Record(NamedTuple):
    """One job and its whole history."""

    row: Row
    events: list[Event]


def audit(
    store: sa.Connection | Path, ledger: Ledger, limits: Limits | None = None
) -> list[Breach]:
    """Return every breach; an empty list means that all promises were kept."""
    if isinstance(store, Path):
        database = Database(store)
        with database.connect_reader() as connection:
            return audit(connection, ledger, limits)
    records = read(store)
    breaches = [
        breach
        for record in records.values()
        for breach in _job_breaches(record, limits or Limits())
    ]
    return [*breaches, *_strays(store), *_ledger_breaches(records, ledger)]


def read(connection: sa.Connection) -> Mapping[str, Record]:
    """Return every job of a store with its events, by id."""
    j, e = tables.jobs.c, tables.events.c
    by_seq = {
        found.seq: Record(_row(found), [])
        for found in connection.execute(sa.select(tables.jobs).order_by(j.seq))
    }
    for found in connection.execute(sa.select(tables.events).order_by(e.seq)):
        record = by_seq.get(found.job)
        if record is not None:
            data = orjson.loads(found.data) if found.data else {}
            record.events.append(
                Event(found.seq, record.row.id, found.n, found.type, found.at, data)
            )
    return {record.row.id: record for record in by_seq.values()}


def steps(events: Iterable[Event]) -> Iterator[tuple[JobState | None, JobState, Event]]:
    """Yield each move that a history tells of; the first is from nowhere."""
    state: JobState | None = None
    for told in events:
        to = event.LEADS_TO.get(told.type)
        if to is not None:
            yield state, to, told
            state = to


def moves(records: Iterable[Record]) -> Counter[tuple[JobState, JobState]]:
    """Count how often jobs went from one state to another."""
    return Counter(
        (before, after)
        for record in records
        for before, after, _ in steps(record.events)
        if before is not None
    )


def _row(found: Any) -> Row:
    key = found.idempotency_key
    return Row(
        seq=found.seq,
        id=found.id,
        state=JobState(found.state),
        generation=found.generation,
        attempt=found.attempt,
        max_attempts=found.max_attempts,
        crashes=found.crashes,
        events=found.events,
        run_at=found.run_at,
        start_by=found.start_by,
        deadline=found.deadline,
        output=found.output,
        error_code=found.error_code,
        owner_key=None if key is None else (found.tenant, found.user, key),
    )


def _strays(connection: sa.Connection) -> Iterator[Breach]:
    """Find events of jobs that are not there: both go in one transaction."""
    j, e = tables.jobs.c, tables.events.c
    lonely = sa.select(e.job).where(e.job.not_in(sa.select(j.seq))).distinct()
    for (seq,) in connection.execute(lonely):
        yield Breach("events", str(seq), "has events and no row")


def _job_breaches(record: Record, limits: Limits) -> Iterator[Breach]:
    for check in (_at_rest, _numbers, _path, _generations, _times):
        for told in check(record):
            yield Breach(_INVARIANTS[check.__name__], record.row.id, told)
    for told in _attempts(record, limits):
        yield Breach("I5", record.row.id, told)


def _at_rest(record: Record) -> Iterator[str]:
    """Check that the job ended, with what its end needs."""
    row = record.row
    if not row.state.is_final:
        yield f"is {row.state} at rest"
    if (row.state is JobState.SUCCEEDED) != (row.output is not None):
        yield f"is {row.state} and its output is {row.output!r}"


def _numbers(record: Record) -> Iterator[str]:
    """Check that events are numbered from 1 without gaps, in the overall order too."""
    numbers = [told.n for told in record.events]
    if numbers != list(range(1, record.row.events + 1)):
        yield f"has events {numbers}, its row counts {record.row.events}"


def _path(record: Record) -> Iterator[str]:
    """Check that the history is a path of the allowed graph and leads to the row."""
    state: JobState | None = None
    for told in record.events:
        to = event.LEADS_TO.get(told.type)
        if to is None:
            if state is not JobState.RUNNING:
                yield f"{told.type} (event {told.n}) while {state}"
            continue
        if state is None:
            if to not in {JobState.QUEUED, JobState.SCHEDULED}:
                yield f"begins with {told.type}"
        elif to not in ALLOWED[state]:
            yield f"went from {state} to {to} (event {told.n})"
        state = to
    if state is not record.row.state:
        yield f"is {record.row.state}, its history ends {state}"


def _generations(record: Record) -> Iterator[str]:
    """Check that each departure from failed, and only that, raises the generation."""
    generation = 0
    for before, _, told in steps(record.events):
        if before is JobState.FAILED:
            generation += 1
        said = told.data.get("generation", generation)
        if said != generation or (before is JobState.FAILED and not told.data):
            yield f"{told.type} (event {told.n}) in generation {said}, not {generation}"
    if record.row.generation != generation:
        yield f"is in generation {record.row.generation}, not {generation}"


def _times(record: Record) -> Iterator[str]:
    """Check that nothing was queued before its time or started after it."""
    row = record.row
    moved = [told for told in record.events if "run_at" in told.data]
    due = None if moved else row.run_at
    expires = min((t for t in (row.start_by, row.deadline) if t), default=None)
    for before, to, told in steps(record.events):
        if before is JobState.SCHEDULED and to is JobState.QUEUED:
            if due is not None and told.at < due:
                yield f"was queued {due - told.at} ms early (event {told.n})"
        elif to is JobState.SCHEDULED:
            due = told.data.get("run_at", due)
        elif to is JobState.RUNNING:
            if expires is not None and told.at >= expires:
                yield f"started {told.at - expires} ms too late (event {told.n})"
            expires = row.deadline


_INVARIANTS = {
    "_at_rest": "I2",
    "_numbers": "events",
    "_path": "I4",
    "_generations": "I4",
    "_times": "times",
}


def _attempts(record: Record, limits: Limits) -> Iterator[str]:
    """Check that each attempt is told whole, and count them and the crashes again."""
    row, history = record.row, attempts(record.events)
    for run in history:
        if run.finished_at is None or run.outcome is None or not run.worker:
            yield f"has an attempt without end, outcome or worker: {run}"
        if run.number > row.max_attempts:
            yield f"has attempt {run.number} of {row.max_attempts}"
    for generation in range(row.generation + 1):
        runs = [run for run in history if run.generation == generation]
        yield from _count(runs, limits)
    last = [run for run in history if run.generation == row.generation]
    counted = (_spent(last), sum(map(_is_crash, last)))
    if counted != (row.attempt, row.crashes):
        yield (
            f"counts {row.attempt} attempts and {row.crashes} crashes, "
            f"its history {counted[0]} and {counted[1]}"
        )


def _count(runs: Sequence[event.Attempt], limits: Limits) -> Iterator[str]:
    for earlier, run in enumerate(runs):
        if run.number != _spent(runs[:earlier]) + 1:
            yield f"counts wrongly: {runs[: earlier + 1]}"
    crashes = sum(map(_is_crash, runs))
    if crashes > limits.crashes:
        yield f"was stalled {crashes} times, the limit is {limits.crashes}"


def _spent(runs: Sequence[event.Attempt]) -> int:
    return sum(run.outcome not in FREE for run in runs)


def _is_crash(run: event.Attempt) -> bool:
    return run.outcome == "stalled" or (run.error or {}).get("code") == WORKER_LOST


def _ledger_breaches(records: Mapping[str, Record], ledger: Ledger) -> Iterator[Breach]:
    pruned = frozenset(ledger.pruned)
    for job in dict.fromkeys(ledger.acknowledged):
        if job not in records and job not in pruned:
            yield Breach("I1", job, "was acknowledged and is not there")
    yield from _effects(records, ledger)
    yield from _keys(records, ledger.answers)
    yield from _stream(records, ledger.stream)
    for reading in ledger.readings:
        record = records.get(reading.job)
        if record is not None:
            for told in _reading(record, reading):
                yield Breach("readers", reading.job, told)


def _effects(records: Mapping[str, Record], ledger: Ledger) -> Iterator[Breach]:
    """Check that exactly the successes have their effect, once."""
    found = Counter(ledger.effects)
    for job in dict.fromkeys(ledger.effective):
        if job not in records:
            continue
        row = records[job].row
        wanted = Counter(
            [(job, row.generation)] if row.state is JobState.SUCCEEDED else []
        )
        there = Counter({key: n for key, n in found.items() if key[0] == job})
        if there != wanted:
            told = f"is {row.state} with effects {dict(there)}, not {dict(wanted)}"
            yield Breach("I3", job, told)


def _keys(records: Mapping[str, Record], answers: Sequence[Answer]) -> Iterator[Breach]:
    """Check that a key stands for one job and one body."""
    stored = Counter(r.row.owner_key for r in records.values() if r.row.owner_key)
    for (_, _, key), count in stored.items():
        if count > 1:
            yield Breach("I7", key, f"stands for {count} jobs in the store")
    for key in dict.fromkeys(answer.key for answer in answers):
        mine = [answer for answer in answers if answer.key == key]
        ids = dict.fromkeys(a.job for a in mine if a.job is not None)
        bodies = dict.fromkeys(a.body for a in mine if a.job is not None)
        if len(ids) > 1 or len(bodies) > 1:
            told = f"was answered with jobs {list(ids)} for bodies {list(bodies)}"
            yield Breach("I7", key, told)
        refused = [a.body for a in mine if a.job is None and a.body in bodies]
        if refused:
            yield Breach("I7", key, f"was refused and answered for {refused}")


def _reading(record: Record, reading: Reading) -> Iterator[str]:
    """Check that a reader saw every event once and in order, and ended at an end."""
    written = [(told.n, told.type) for told in record.events]
    if reading.seen != written[: len(reading.seen)]:
        yield f"a reader saw {reading.seen} of {written}"
    elif reading.is_over:
        last = record.events[len(reading.seen) - 1] if reading.seen else None
        if last is None or not last.is_final:
            yield f"a reader was sent away after {reading.seen} of {written}"


def _stream(records: Mapping[str, Record], seen: Sequence[int]) -> Iterator[Breach]:
    """Check that the overall stream was seen whole, once and in order."""
    if any(after <= before for before, after in pairwise(seen)):
        yield Breach("readers", "", f"the stream came out of order: {seen}")
    written = {told.seq for record in records.values() for told in record.events}
    missed = written.difference(seen) if seen else ()
    if missed:
        yield Breach("readers", "", f"the stream left out {sorted(missed)}")
