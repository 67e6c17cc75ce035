"""
The auditor's checks of flows, batches and deliveries.

The rules are derived from the guarantees, independently of the statements that
implement them. The overall order of events is the order of commits of related jobs, so
a history shows what was known at each event.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import orjson

from backburner.domain.events import event
from backburner.domain.events.event import Event
from backburner.domain.groups.batch import PROGRESS_MS, BatchState
from backburner.domain.groups.flow import FlowState
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import DEPENDENCY_FAILED
from backburner.domain.webhooks.delivery import CAPABILITY
from backburner.testing.records import (
    Books,
    Breach,
    Edge,
    Group,
    Record,
    generations,
    steps,
)

READY: Final = frozenset({JobState.QUEUED, JobState.SCHEDULED})
HELD_BACK: Final = frozenset({None, JobState.BLOCKED, JobState.FAILED})
"""The states from which a job becomes ready for the first time, or again."""
AGAIN: Final = frozenset({event.FLOW_REOPENED, event.BATCH_REOPENED})
UNSUCCESSFUL: Final = frozenset({JobState.FAILED, JobState.CANCELLED})


class Made(NamedTuple):
    """A delivery or a completion."""

    capability: str
    tags: str | None
    input: str


class GroupReading(NamedTuple):
    """The events of a flow or batch that one reader got over all its connections."""

    group: str
    seen: list[int]
    """`seq` of each event, in the order of arrival."""
    is_over: bool
    """Whether the server ended the stream."""


class Course(NamedTuple):
    """The states of a job over time."""

    seqs: Sequence[int]
    states: Sequence[JobState]

    def at(self, seq: int) -> JobState | None:
        """Return the state right before an event; `None` before the job existed."""
        place = bisect_left(self.seqs, seq)
        return self.states[place - 1] if place else None

    def has_ended(self, seq: int) -> bool:
        """Return whether the job had ever ended before an event."""
        before = bisect_left(self.seqs, seq)
        return any(state.is_final for state in self.states[:before])


class Need(NamedTuple):
    """A prerequisite of a step."""

    course: Course
    continues: bool


def breaches(books: Books, made: Sequence[Made]) -> Iterator[Breach]:
    """Yield all breaches of guarantees about flows, batches and deliveries."""
    for stray in books.strays:
        yield Breach("events", stray, "has events and no row")
    yield from _lonely(books)
    yield from _flows(books)
    yield from _batches(books)
    yield from _followers(books, made or _rows(books))


def verdict(states: Mapping[int, JobState], edges: Iterable[Edge]) -> FlowState:
    """Return the state of a flow from those of its steps."""
    minding: dict[int, list[bool]] = {seq: [] for seq in states}
    for edge in edges:
        minding[edge.prerequisite].append(not edge.continues)
    minded = {states[seq] for seq, minds in minding.items() if not minds or any(minds)}
    if JobState.FAILED in minded:
        return FlowState.FAILED
    return FlowState.CANCELLED if JobState.CANCELLED in minded else FlowState.SUCCEEDED


def _lonely(books: Books) -> Iterator[Breach]:
    """Find rows that a deleted flow left behind."""
    jobs = {record.row.seq for record in books.jobs.values()}
    flows = {group.seq for group in books.flows.values()}
    for edge in books.edges:
        if edge.prerequisite not in jobs or edge.dependent not in jobs:
            yield Breach("prune", str(edge), "is an edge of steps that are not there")
    for record in books.jobs.values():
        if record.row.flow is not None and record.row.flow not in flows:
            yield Breach("prune", record.row.id, "is a step of no flow")


def _flows(books: Books) -> Iterator[Breach]:
    members: dict[int, dict[int, Record]] = {g.seq: {} for g in books.flows.values()}
    edges: dict[int, list[Edge]] = {seq: [] for seq in members}
    flow_of: dict[int, int] = {}
    for record in books.jobs.values():
        if record.row.flow in members:
            members[record.row.flow][record.row.seq] = record
            flow_of[record.row.seq] = record.row.flow
    for edge in books.edges:
        if edge.prerequisite in flow_of and edge.dependent in flow_of:
            edges[flow_of[edge.dependent]].append(edge)
    for flow in books.flows.values():
        yield from _flow_breaches(flow, members[flow.seq], edges[flow.seq])


def _flow_breaches(
    flow: Group, members: Mapping[int, Record], edges: Sequence[Edge]
) -> Iterator[Breach]:
    courses = {seq: _course(record.events) for seq, record in members.items()}
    for told in _flow(flow, courses, edges):
        yield Breach("I9", flow.id, told)
    for seq, record in members.items():
        needs = [
            Need(courses[edge.prerequisite], edge.continues)
            for edge in edges
            if edge.dependent == seq
        ]
        for told in (*_step(record, needs), *_given_up(record, needs)):
            yield Breach("I9", record.row.id, told)


def _course(events: Iterable[Event]) -> Course:
    moves = [(told.seq, to) for _, to, told in steps(events)]
    return Course([seq for seq, _ in moves], [state for _, state in moves])


def _flow(
    flow: Group, courses: Mapping[int, Course], edges: Sequence[Edge]
) -> Iterator[str]:
    """Check that a flow ends once in each generation, in the state of its steps."""
    if flow.state == FlowState.RUNNING:
        yield "is running at rest"
    yield from _numbers(flow)
    yield from _turns(flow, event.FLOW_STARTED, event.FLOW_ENDS, event.FLOW_REOPENED)
    last = flow.events[-1].type if flow.events else ""
    if last in event.FLOW_ENDS and last != f"flow.{flow.state}":
        yield f"is {flow.state}, its history ends with {last}"
    for told in flow.events:
        if told.type in event.FLOW_ENDS:
            yield from _end(told, courses, edges)


def _end(
    told: Event, courses: Mapping[int, Course], edges: Sequence[Edge]
) -> Iterator[str]:
    """Check a flow's end against the states of its steps at that time."""
    then = {seq: course.at(told.seq) for seq, course in courses.items()}
    states = {seq: state for seq, state in then.items() if state is not None}
    live = [state for state in states.values() if not state.is_final]
    if live:
        yield f"tells {told.type} (event {told.n}) while steps are {live}"
        return
    known = [e for e in edges if e.prerequisite in states and e.dependent in states]
    expected = verdict(states, known)
    if told.type != f"flow.{expected}":
        yield f"tells {told.type} (event {told.n}), its steps come to {expected}"


def _step(record: Record, needs: Sequence[Need]) -> Iterator[str]:
    """Check that a step was ready, and started, after its prerequisites."""
    for before, to, told in steps(record.events):
        for course, continues in needs:
            state = course.at(told.seq)
            if state is None or state is JobState.SUCCEEDED:
                continue  # or it was put before the step later
            if to in READY and before in HELD_BACK:
                is_over = continues and state.is_final
            else:
                is_over = continues and course.has_ended(told.seq)
            if not is_over and to in {*READY, JobState.RUNNING}:
                yield f"tells {told.type} (event {told.n}) while it needs one {state}"


def _given_up(record: Record, needs: Sequence[Need]) -> Iterator[str]:
    """Check that a step is given up only if a prerequisite did not succeed."""
    for told in record.events:
        code = (told.data.get("error") or {}).get("code")
        if told.type == event.CANCELLED and code == DEPENDENCY_FAILED:
            states = [need.course.at(told.seq) for need in needs if not need.continues]
            if not UNSUCCESSFUL.intersection(states):
                yield f"was given up (event {told.n}) while it needed {states}"


def _batches(books: Books) -> Iterator[Breach]:
    for batch in books.batches.values():
        for check in (_rests, _numbers, _batch_turns, _progress):
            for told in check(batch):
                yield Breach("I10", batch.id, told)
        for told in _counts(batch, books):
            yield Breach("I10", batch.id, told)


def _rests(batch: Group) -> Iterator[str]:
    is_over = batch.state == BatchState.FINISHED
    if is_over != batch.sealed:
        yield f"is {batch.state} at rest, sealed: {batch.sealed}"


def _batch_turns(batch: Group) -> Iterator[str]:
    """Check that a batch finishes once each time that it was opened."""
    finished = {event.BATCH_FINISHED}
    plain = [told for told in batch.events if told.type != event.BATCH_PROGRESS]
    bare = batch._replace(events=plain)
    yield from _turns(bare, event.BATCH_OPENED, finished, event.BATCH_REOPENED)
    is_over = bool(plain) and plain[-1].type in finished
    if is_over != (batch.state == BatchState.FINISHED):
        yield f"is {batch.state}, its history ends with {plain[-1:]}"


def _progress(batch: Group) -> Iterator[str]:
    """Check that progress is reported at most once a second and never goes back."""
    told = [e for e in batch.events if e.type == event.BATCH_PROGRESS]
    for earlier, later in pairwise(told):
        if later.at - earlier.at < PROGRESS_MS:
            yield f"told of progress after {later.at - earlier.at} ms"
    done = 0
    for said in batch.events:
        if said.type == event.BATCH_REOPENED:
            done = 0
        elif "done" in said.data:
            if not done <= said.data["done"] <= said.data["total"]:
                yield f"went from {done} to {said.data} (event {said.n})"
            done = said.data["done"]


def _counts(batch: Group, books: Books) -> Iterator[str]:
    """Recount a finished batch."""
    if batch.state != BatchState.FINISHED:
        return
    flows = {g.seq: g.state for g in books.flows.values() if g.batch == batch.seq}
    rows = [record.row for record in books.jobs.values()]
    alone = [r.state for r in rows if r.flow is None and r.batch == batch.seq]
    members = Counter(map(str, (*alone, *flows.values())))
    jobs = Counter(map(str, (*alone, *(r.state for r in rows if r.flow in flows))))
    expected = {
        "total": members.total(),
        "done": members.total(),
        "members": dict(members),
        "jobs": dict(jobs),
    }
    finish = batch.events[-1].data if batch.events else {}
    for said in (batch.counts, finish):
        if said != expected:
            yield f"counts {said}, there are {expected}"
    if batch.expected is not None and members.total() > batch.expected:
        yield f"has {members.total()} members and room for {batch.expected}"


def _numbers(group: Group) -> Iterator[str]:
    numbers = [told.n for told in group.events]
    if numbers != list(range(1, group.counted + 1)):
        yield f"has events {numbers}, its row counts {group.counted}"


def _turns(
    group: Group, first: str, ends: Collection[str], again: str
) -> Iterator[str]:
    """Check that ends and reopenings alternate after the first event."""
    generation, is_open = 0, False
    for place, told in enumerate(group.events):
        if place == 0:
            is_right, is_open = told.type == first, True
        elif is_open:
            is_right, is_open = told.type in ends, False
        else:
            generation, is_open = generation + 1, True
            said = told.data.get("generation")
            is_right = (told.type, said) == (again, generation)
        if not is_right:
            yield f"tells {told.type} (event {told.n}) out of turn"
    if generation != group.generation:
        yield f"is in generation {group.generation}, not {generation}"


def _followers(books: Books, made: Sequence[Made]) -> Iterator[Breach]:
    """Check that every end has one delivery, and every batch one completion."""
    deliveries: dict[str, list[tuple[int, str]]] = {}
    follows: Counter[str] = Counter()
    yield from _completions(books, made)
    for job in made:
        said = orjson.loads(job.input) if job.capability == CAPABILITY else {}
        if said and "message" not in said:  # except a replay by hand
            mine = deliveries.setdefault(said["subject"], [])
            mine.append((said["generation"], said["type"]))
        follows.update(tag for tag in (job.tags or "").split("\n") if tag)
    for subject, ends, calls_back in _ends(books):
        expected = sorted(ends) if calls_back else []
        found = sorted(deliveries.get(subject, ()))
        if found != expected:
            yield Breach("I8", subject, f"has ends {expected}, told of were {found}")
    for batch in books.batches.values():
        count = sum(told.type == event.BATCH_FINISHED for told in batch.events)
        followed = follows[f"batch:{batch.id}"]
        if followed != (count if batch.is_followed else 0):
            said = f"ended {count} times and was followed by {followed} jobs"
            yield Breach("I10", batch.id, said)


def _completions(books: Books, made: Sequence[Made]) -> Iterator[Breach]:
    """Check that every end of a job with a completion is followed by exactly one."""
    told: dict[str, list[tuple[int, str]]] = {}
    for job in made:
        if not (job.tags or "").startswith("completion:"):
            continue
        end = orjson.loads(job.input)["job"]
        mine = told.setdefault(end["id"], [])
        mine.append((end["generation"], f"job.{end['state']}"))
        done = books.jobs.get(end["id"]) if end["state"] == "succeeded" else None
        if done and orjson.loads(done.row.output or "null") != end["output"]:
            yield Breach("I11", end["id"], "its completion has another output")
    for record in books.jobs.values():
        ends = [
            (g, told.type) for g, told in generations(record.events) if told.is_final
        ]
        expected = sorted(ends) if record.row.is_followed else []
        found = sorted(told.get(record.row.id, ()))
        if found != expected:
            said = f"has ends {expected}, followed were {found}"
            yield Breach("I11", record.row.id, said)


def _ends(books: Books) -> Iterator[tuple[str, list[tuple[int, str]], bool]]:
    """Yield each job, flow and batch with the generation and type of its ends."""
    for record in books.jobs.values():
        ends = [
            (g, told.type) for g, told in generations(record.events) if told.is_final
        ]
        yield record.row.id, ends, record.row.calls_back
    for group in (*books.flows.values(), *books.batches.values()):
        ends, generation = [], 0
        for told in group.events:
            generation += told.type in AGAIN
            if told.is_final:
                ends.append((generation, told.type))
        yield group.id, ends, group.calls_back


def misread(books: Books, readings: Iterable[GroupReading]) -> Iterator[Breach]:
    """Yield events that readers missed, or got twice or out of order."""
    for reading in readings:
        group = books.flows.get(reading.group) or books.batches.get(reading.group)
        if group is None:
            continue
        own = [told.seq for told in group.events]
        steps_of = [r for r in books.jobs.values() if r.row.flow == group.seq]
        is_flow = reading.group in books.flows
        written = sorted(own + [e.seq for r in steps_of for e in r.events if is_flow])
        if reading.seen != written[: len(reading.seen)]:
            told = f"a reader saw {reading.seen} of {written}"
            yield Breach("readers", reading.group, told)
        elif reading.is_over:
            last = [told for told in group.events if told.seq in reading.seen][-1:]
            if not last or not last[0].is_final:
                told = f"a reader was sent away after {reading.seen} of {written}"
                yield Breach("readers", reading.group, told)


def _rows(books: Books) -> list[Made]:
    rows = [record.row for record in books.jobs.values()]
    return [Made(row.capability, row.tags, row.input) for row in rows]
