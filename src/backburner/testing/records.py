"""The data that an auditor reads: all jobs, flows and batches with their histories."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from backburner.domain.costs.budget import Balance, Kind, Posting
from backburner.domain.events import event
from backburner.domain.events.event import Event
from backburner.domain.jobs.job import Instant, JobState
from backburner.stores import tables

OwnerKey = tuple[str, str, str]
"""Tenant, user and idempotency key."""


class Breach(NamedTuple):
    """A guarantee that was not kept."""

    invariant: str
    """The number of the invariant, or a word."""
    job: str
    """The id of the job, flow, batch or worker concerned."""
    told: str


class Row(NamedTuple):
    """The columns of a job's row that the auditor needs."""

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
    owner_key: OwnerKey | None
    capability: str
    input: str
    tags: str | None
    flow: int | None
    batch: int | None
    calls_back: bool
    is_followed: bool
    """Whether the job has a completion."""
    holds: int = 0
    queue: str = "default"


class Hold(NamedTuple):
    """A current or past hold."""

    seq: int
    job: int | None
    generation: int
    amount: int
    is_open: bool
    expected: int = 0
    """The total that was held, before and after its job waited."""
    has_waited: bool = False
    """Whether it was released while its job waited, and may have been renewed."""


class Entry(NamedTuple):
    """An entry of the ledger."""

    hold: int
    posting: Posting
    limit: int | None
    """The budget's limit when the entry was written."""


class AccountBook(NamedTuple):
    """An account with all its entries."""

    name: str
    unit: str
    balance: Balance
    holds: list[Hold]
    entries: list[Entry]


class Record(NamedTuple):
    """A job and its complete history."""

    row: Row
    events: list[Event]


class Group(NamedTuple):
    """A flow or batch and its own history."""

    seq: int
    id: str
    state: str
    generation: int
    counted: int
    """The number of events according to its row."""
    calls_back: bool
    owner_key: OwnerKey | None
    batch: int | None
    """The batch of a flow."""
    sealed: bool
    expected: int | None
    is_followed: bool
    """Whether it has a completion."""
    counts: Mapping[str, Any] | None
    events: list[Event]


class Edge(NamedTuple):
    """A dependency between two jobs, by key."""

    prerequisite: int
    dependent: int
    continues: bool


@dataclass(frozen=True, slots=True)
class Books:
    """Everything in a store; histories are in the overall order."""

    jobs: Mapping[str, Record]
    flows: Mapping[str, Group]
    batches: Mapping[str, Group]
    edges: Sequence[Edge]
    strays: Sequence[str]
    """Subjects that have events but no row."""
    accounts: Sequence[AccountBook] = ()
    used: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The tokens that jobs reported, by key and generation."""
    totals: Mapping[tuple[str, str], int] | None = None
    """The numbers of ended jobs by queue and state, if they were read."""

    def written(self) -> set[int]:
        """Return the numbers of all events that belong to a subject."""
        groups = (*self.flows.values(), *self.batches.values())
        return {
            told.seq
            for events in (
                *(record.events for record in self.jobs.values()),
                *(group.events for group in groups),
            )
            for told in events
        }


def read(connection: sa.Connection) -> Books:
    """Return all jobs, flows and batches of a store with their events, by id."""
    jobs = {row.seq: Record(_row(row), []) for row in _all(connection, tables.jobs)}
    flows = {row.seq: _flow(row) for row in _all(connection, tables.flows)}
    batches = {row.seq: _batch(row) for row in _all(connection, tables.batches)}
    strays: Counter[str] = Counter()
    for row in _all(connection, tables.events):
        if row.job is not None:
            record = jobs.get(row.job)
            _note(row, record and record.row.id, record and record.events, strays)
        elif row.flow is not None or row.batch is not None:
            group = flows.get(row.flow) or batches.get(row.batch)
            _note(row, group and group.id, group and group.events, strays)
    return Books(
        jobs={record.row.id: record for record in jobs.values()},
        flows={group.id: group for group in flows.values()},
        batches={group.id: group for group in batches.values()},
        edges=[Edge(*row) for row in connection.execute(sa.select(tables.edges))],
        strays=[*strays],
        accounts=_accounts(connection),
        used=_used(connection),
        totals=_totals(connection),
    )


def _totals(connection: sa.Connection) -> dict[tuple[str, str], int]:
    totals: Counter[tuple[str, str]] = Counter()
    for row in _all(connection, tables.totals):
        totals[row.queue, row.state] += row.n
    return dict(totals)


def _used(connection: sa.Connection) -> dict[tuple[int, int], int]:
    used: Counter[tuple[int, int]] = Counter()
    for row in _all(connection, tables.usages):
        used[row.job, row.generation] += row.input_tokens + row.output_tokens
    return dict(used)


def _accounts(connection: sa.Connection) -> list[AccountBook]:
    found: dict[int, AccountBook] = {}
    for row in _all(connection, tables.accounts):
        name = f"{row.scope} {row.value}, {row.unit} from {row.window_at}"
        balance = Balance(row.held, row.settled, row.overdraft)
        found[row.seq] = AccountBook(name, row.unit, balance, [], [])
    for row in _all(connection, tables.holds):
        rest = row.amount if row.resumes_with is None else row.resumes_with
        hold = Hold(
            *(row.seq, row.job, row.generation, row.amount, bool(row.is_open)),
            expected=(row.earlier or 0) + rest,
            has_waited=row.earlier is not None,
        )
        found[row.account].holds.append(hold)
    for row in _all(connection, tables.entries):
        entry = Entry(row.hold, Posting(Kind(row.kind), row.amount), row.ceiling)
        found[row.account].entries.append(entry)
    return [*found.values()]


def steps(events: Iterable[Event]) -> Iterator[tuple[JobState | None, JobState, Event]]:
    """Yield the transitions of a history; the first has no state before it."""
    state: JobState | None = None
    for told in events:
        to = event.LEADS_TO.get(told.type)
        if to is not None:
            yield state, to, told
            state = to


def generations(events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """Yield the events that changed a job, each with its generation at that time."""
    generation = 0
    for before, _, told in steps(events):
        generation += before is not None and before.is_final
        yield generation, told


def _all(connection: sa.Connection, table: sa.Table) -> Iterable[Any]:
    return connection.execute(sa.select(table).order_by(table.c.seq))


def _note(
    row: Any, subject: str | None, history: list[Event] | None, strays: Counter[str]
) -> None:
    if subject is None or history is None:
        strays[f"job {row.job}, flow {row.flow}, batch {row.batch}"] += 1
        return
    data = orjson.loads(row.data) if row.data else {}
    history.append(Event(row.seq, subject, row.n, row.type, row.at, data))


def _row(found: Any) -> Row:
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
        owner_key=_owner_key(found),
        capability=found.capability,
        input=found.input,
        tags=found.tags,
        flow=found.flow,
        batch=found.batch,
        calls_back=not {"url", "endpoint"}.isdisjoint(_follows(found)),
        is_followed="completion" in _follows(found),
        holds=found.holds,
        queue=found.queue,
    )


def _follows(found: Any) -> Mapping[str, Any]:
    """Return what a job's row says about what follows its end."""
    follows: Mapping[str, Any] = orjson.loads(found.callback or "{}")
    return follows


def _flow(found: Any) -> Group:
    return _group(found, batch=found.batch)


def _batch(found: Any) -> Group:
    return _group(
        found,
        sealed=bool(found.sealed),
        expected=found.expected,
        is_followed=found.completion is not None,
        counts=orjson.loads(found.counts) if found.counts else None,
    )


def _group(found: Any, **own: Any) -> Group:
    usual = {
        "batch": None,
        "sealed": True,
        "expected": None,
        "is_followed": False,
        "counts": None,
    }
    return Group(
        seq=found.seq,
        id=found.id,
        state=found.state,
        generation=found.generation,
        counted=found.events,
        calls_back=found.callback is not None,
        owner_key=_owner_key(found),
        events=[],
        **usual | own,
    )


def _owner_key(found: Any) -> OwnerKey | None:
    key = found.idempotency_key
    return None if key is None else (found.tenant, found.user, key)
