"""
The auditor: checks, on a store at rest, that every guarantee was kept.

It compares two records, the rows of the store and a ledger kept by the client. Run it
after all faults have ended and nothing is running.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import orjson
import sqlalchemy as sa

from backburner.domain.events import event
from backburner.domain.events.event import attempts
from backburner.domain.events.text import Text
from backburner.domain.jobs.job import WAITING, JobState
from backburner.domain.jobs.transitions import (
    ALLOWED,
    DEPENDENCY_FAILED,
    EXPIRED,
    WORKER_LOST,
    Limits,
)
from backburner.stores.sqlite.database import Database
from backburner.testing import budgets, groups
from backburner.testing.groups import GroupReading, Made
from backburner.testing.records import (
    Books,
    Breach,
    Record,
    generations,
    read,
    steps,
)

CAUSES = (
    event.SUCCEEDED,
    event.FAILED,
    event.CANCELLED,
    EXPIRED,
    WORKER_LOST,
    DEPENDENCY_FAILED,
)
"""The causes of a job's end: an event type, or the code of an error in the event."""
FREE = frozenset(
    {"throttled", "scheduled", "waiting", "signalled", "stalled", "handed_back"}
)
"""Outcomes that do not use up an attempt."""


class Answer(NamedTuple):
    """A response to a submission, as the client got it."""

    key: str
    body: str
    job: str | None
    """The id; `None` when the key was refused because of another body."""


class Reading(NamedTuple):
    """The events of a job that one reader got over all its connections."""

    job: str
    seen: list[tuple[int, str]]
    """Number and type of each event, in the order of arrival."""
    is_over: bool
    """Whether the server ended the stream."""


@dataclass(slots=True)
class Ledger:
    """The client's own record. Leave empty what it did not observe."""

    acknowledged: list[str] = field(default_factory=list)
    """All ids of jobs, flows and batches that were returned to clients."""
    answers: list[Answer] = field(default_factory=list)
    """All responses to submissions with an idempotency key."""
    effective: list[str] = field(default_factory=list)
    """Jobs whose handler writes one effect through `ctx.at_settlement`."""
    effects: list[tuple[str, int]] = field(default_factory=list)
    """The effects that exist: job and generation."""
    streamed: list[str] = field(default_factory=list)
    """Jobs whose handler streams text and returns the same text."""
    readings: list[Reading] = field(default_factory=list)
    group_readings: list[GroupReading] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    """`seq` of the events that a reader of the only owner's whole stream got."""
    pruned: list[str] = field(default_factory=list)
    """Finished jobs, flows and batches that were deleted since."""
    made: list[Made] = field(default_factory=list)
    """Deliveries and completions, if some of them may have been deleted."""

    def acknowledge(self, job: str, key: str | None = None, body: str = "") -> None:
        """Record that a submission returned this id."""
        self.acknowledged.append(job)
        if key is not None:
            self.answers.append(Answer(key, body, job))

    def refuse(self, key: str, body: str) -> None:
        """Record that a key was refused because it was used with another body."""
        self.answers.append(Answer(key, body, None))


def audit(
    store: sa.Connection | Path, ledger: Ledger, limits: Limits | None = None
) -> list[Breach]:
    """Return all breaches; an empty list means that all guarantees were kept."""
    if isinstance(store, Path):
        database = Database(store)
        with database.connect_reader() as connection:
            return audit(connection, ledger, limits)
    return audit_books(read(store), ledger, limits)


def audit_books(
    books: Books, ledger: Ledger, limits: Limits | None = None
) -> list[Breach]:
    """Return all breaches in the data of a store."""
    breaches = [
        breach
        for record in books.jobs.values()
        for breach in _job_breaches(record, limits or Limits())
    ]
    breaches += groups.breaches(books, ledger.made)
    breaches += groups.misread(books, ledger.group_readings)
    breaches += budgets.breaches(books)
    if books.totals is not None and not ledger.pruned:
        breaches += _miscounted(books.jobs.values(), books.totals)
    return [*breaches, *_ledger_breaches(books, ledger)]


def _miscounted(
    records: Iterable[Record], totals: Mapping[tuple[str, str], int]
) -> Iterator[Breach]:
    """Yield queues whose totals differ from the ends in the histories."""
    ended = Counter(
        (record.row.queue, to.value)
        for record in records
        for _, to, _ in steps(record.events)
        if to.is_final
    )
    for queue, state in sorted({*ended, *totals}):
        seen, counted = ended[queue, state], totals.get((queue, state), 0)
        if seen != counted:
            difference = f"{seen} ended as {state}, {counted} are counted"
            yield Breach("totals", queue, difference)


def moves(records: Iterable[Record]) -> Counter[tuple[JobState, JobState]]:
    """Count how often jobs went from one state to another."""
    return Counter(
        (before, after)
        for record in records
        for before, after, _ in steps(record.events)
        if before is not None
    )


def followed_ends(records: Iterable[Record]) -> Counter[str]:
    """Count the ends of jobs that have a completion, by their cause."""
    followed = [record for record in records if record.row.is_followed]
    ends = (told for record in followed for told in record.events if told.is_final)
    return Counter(map(_cause, ends))


def _cause(told: event.Event) -> str:
    code = (told.data.get("error") or {}).get("code")
    return code if code in CAUSES else told.type


def _job_breaches(record: Record, limits: Limits) -> Iterator[Breach]:
    for check in (_at_rest, _numbers, _path, _generations, _times, _text):
        for told in check(record):
            yield Breach(_INVARIANTS[check.__name__], record.row.id, told)
    for told in _attempts(record, limits):
        yield Breach("I5", record.row.id, told)


def _at_rest(record: Record) -> Iterator[str]:
    """Check that the job ended, with the data that its state requires."""
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
    """Check that the history consists of allowed transitions and leads to the row."""
    state: JobState | None = None
    for told in record.events:
        to = event.LEADS_TO.get(told.type)
        if to is None:
            if state is not JobState.RUNNING and told.type != event.CHANGED:
                yield f"{told.type} (event {told.n}) while {state}"
            continue
        if state is None:
            if to not in WAITING:
                yield f"begins with {told.type}"
        elif to not in ALLOWED[state]:
            yield f"went from {state} to {to} (event {told.n})"
        state = to
    if state is not record.row.state:
        yield f"is {record.row.state}, its history ends {state}"


def _generations(record: Record) -> Iterator[str]:
    """Check that only leaving a final state increments the generation."""
    generation, earlier = 0, 0
    for generation, told in generations(record.events):
        said = told.data.get("generation", generation)
        if said != generation or (generation != earlier and not told.data):
            yield f"{told.type} (event {told.n}) in generation {said}, not {generation}"
        earlier = generation
    if record.row.generation != generation:
        yield f"is in generation {record.row.generation}, not {generation}"


def _times(record: Record) -> Iterator[str]:
    """Check that no job was queued too early or started too late."""
    row = record.row
    moved = [told for told in record.events if "run_at" in told.data]
    due = None if moved else row.run_at
    expires = min((t for t in (row.start_by, row.deadline) if t), default=None)
    for before, to, told in steps(record.events):
        if before in _WAITED and to is JobState.QUEUED:
            if due is not None and told.at < due:
                yield f"was queued {due - told.at} ms early (event {told.n})"
        elif to is JobState.SCHEDULED:
            due = told.data.get("run_at", due)
        elif to is JobState.RUNNING:
            if expires is not None and told.at >= expires:
                yield f"started {told.at - expires} ms too late (event {told.n})"
            expires = row.deadline


def _text(record: Record) -> Iterator[str]:
    """Check that the streamed text has no gap, repetition or misplaced part."""
    text, epoch = Text(), 0
    for told in record.events:
        epoch = told.n if told.type == event.STARTED else epoch
        if told.data.get("epoch", epoch) != epoch:
            yield f"has text of epoch {told.data['epoch']} in {epoch} (event {told.n})"
        try:
            text.take(told.n, told.type, told.data)
        except ValueError as error:
            yield str(error)


_WAITED = frozenset({JobState.SCHEDULED, JobState.BLOCKED})

_INVARIANTS = {
    "_at_rest": "I2",
    "_numbers": "events",
    "_path": "I4",
    "_generations": "I4",
    "_times": "times",
    "_text": "text",
}


def _attempts(record: Record, limits: Limits) -> Iterator[str]:
    """Check that each attempt is complete, and recount attempts and crashes."""
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


def _count(runs: Sequence[event.AttemptRecord], limits: Limits) -> Iterator[str]:
    for earlier, run in enumerate(runs):
        if run.number != _spent(runs[:earlier]) + 1:
            yield f"counts wrongly: {runs[: earlier + 1]}"
    crashes = sum(map(_is_crash, runs))
    if crashes > limits.crashes:
        yield f"was stalled {crashes} times, the limit is {limits.crashes}"


def _spent(runs: Sequence[event.AttemptRecord]) -> int:
    return sum(run.outcome not in FREE for run in runs)


def _is_crash(run: event.AttemptRecord) -> bool:
    return run.outcome == "stalled" or (run.error or {}).get("code") == WORKER_LOST


def _ledger_breaches(books: Books, ledger: Ledger) -> Iterator[Breach]:
    records = books.jobs
    there = {*records, *books.flows, *books.batches, *ledger.pruned}
    for subject in dict.fromkeys(ledger.acknowledged):
        if subject not in there:
            yield Breach("I1", subject, "was acknowledged and is not there")
    yield from _effects(records, ledger)
    yield from _streams(records, ledger)
    yield from _keys(books, ledger.answers)
    yield from _stream(books, ledger.stream)
    for reading in ledger.readings:
        record = records.get(reading.job)
        if record is not None:
            for told in _reading(record, reading):
                yield Breach("readers", reading.job, told)


def _effects(records: Mapping[str, Record], ledger: Ledger) -> Iterator[Breach]:
    """Check that each success has its effect exactly once, and nothing else has one."""
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
            difference = (
                f"is {row.state} with effects {dict(there)}, not {dict(wanted)}"
            )
            yield Breach("I3", job, difference)


def _streams(records: Mapping[str, Record], ledger: Ledger) -> Iterator[Breach]:
    """Check that the streamed text equals the result."""
    for job in dict.fromkeys(ledger.streamed):
        record = records.get(job)
        if record is None or record.row.output is None:
            continue
        text, result = Text(), orjson.loads(record.row.output)
        with suppress(ValueError):  # reported by `_text`
            for told in record.events:
                text.take(told.n, told.type, told.data)
        if str(text) != result:
            yield Breach(
                "text", job, f"streamed {str(text)!r}, the result is {result!r}"
            )


def _keys(books: Books, answers: Sequence[Answer]) -> Iterator[Breach]:
    """Check that a key stands for one job, flow or batch and one body."""
    for kind in (
        [record.row.owner_key for record in books.jobs.values()],
        [group.owner_key for group in books.flows.values()],
        [group.owner_key for group in books.batches.values()],
    ):
        for (_, _, key), count in Counter(filter(None, kind)).items():
            if count > 1:
                yield Breach("I7", key, f"stands for {count} in the store")
    for key in dict.fromkeys(answer.key for answer in answers):
        mine = [answer for answer in answers if answer.key == key]
        ids = dict.fromkeys(a.job for a in mine if a.job is not None)
        bodies = dict.fromkeys(a.body for a in mine if a.job is not None)
        if len(ids) > 1 or len(bodies) > 1:
            answered = f"was answered with jobs {list(ids)} for bodies {list(bodies)}"
            yield Breach("I7", key, answered)
        refused = [a.body for a in mine if a.job is None and a.body in bodies]
        if refused:
            yield Breach("I7", key, f"was refused and answered for {refused}")


def _reading(record: Record, reading: Reading) -> Iterator[str]:
    """Check that a reader got all events once, in order, up to the end."""
    written = [(told.n, told.type) for told in record.events]
    if reading.seen != written[: len(reading.seen)]:
        yield f"a reader saw {reading.seen} of {written}"
    elif reading.is_over:
        last = record.events[len(reading.seen) - 1] if reading.seen else None
        if last is None or not last.is_final:
            yield f"a reader was sent away after {reading.seen} of {written}"


def _stream(books: Books, seen: Sequence[int]) -> Iterator[Breach]:
    """Check that the overall stream was complete, in order and without repeats."""
    if any(after <= before for before, after in pairwise(seen)):
        yield Breach("readers", "", f"the stream came out of order: {seen}")
    missed = books.written().difference(seen) if seen else ()
    if missed:
        yield Breach("readers", "", f"the stream left out {sorted(missed)}")
