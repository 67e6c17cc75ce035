"""The error, event and rank of a state change, on both databases."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, Protocol, TypeVar

import orjson

from backburner.domain.jobs.job import Claim, NewJob
from backburner.domain.jobs.transitions import Change

A = TypeVar("A")

TRACE = "trace"
"""The key of the stack trace in an event's stored data: `as_events` separates it."""

KEY_LIFETIME_MS = 24 * 60 * 60 * 1000
"""The lifetime of an idempotency key."""


class Numbered(Protocol):
    """Something that has a job's key."""

    @property
    def seq(self) -> int:
        """The job's key."""
        ...


def turns(asks: Sequence[Numbered]) -> Iterator[dict[int, int]]:
    """
    Yield rounds of requests, as indexes by job, with one per job in each round.

    In one statement, a stale request would prevent the valid one for the same job.
    """
    waiting: Sequence[int] = range(len(asks))
    while waiting:
        turn: dict[int, int] = {}
        waiting = [i for i in waiting if turn.setdefault(asks[i].seq, i) != i]
        yield turn


def as_given(batches: Sequence[Sequence[Any]], answers: Sequence[A]) -> list[list[A]]:
    """Split answers into one list per caller, by the number of its requests."""
    given: list[list[A]] = []
    first = 0
    for batch in batches:
        given.append([*answers[first : first + len(batch)]])
        first += len(batch)
    return given


def in_turn(claims: Iterable[Claim]) -> list[Claim]:
    """Sort claims by priority, the highest first, then by rank."""
    ordered = sorted(claims, key=_BY_RANK)
    if len({claim.priority for claim in ordered}) > 1:
        ordered.sort(key=_BY_PRIORITY, reverse=True)  # stable: ranks stay in order
    return ordered


_BY_RANK = attrgetter("rank", "seq")
_BY_PRIORITY = attrgetter("priority")


def as_json(value: Any) -> str:
    """Return a value as JSON for storage."""
    return orjson.dumps(value).decode()


def error_json(change: Change) -> str | None:
    """Return a change's error as JSON."""
    return None if change.error is None else as_json(_problem(change))


def event_json(change: Change) -> str | None:
    """Return the data of a change's event."""
    data = dict(change.data or {})
    if change.error is not None:
        data["error"] = _problem(change)
    if change.run_at is not None:
        data["run_at"] = change.run_at
    if change.trace is not None:
        data[TRACE] = change.trace
    return as_json(data) if data else None


def wait_json(change: Change) -> str | None:
    """Return the wait that a change sets, as JSON."""
    return None if change.wait is None else as_json(list(change.wait))


def _problem(change: Change) -> dict[str, Any]:
    assert change.error is not None  # noqa: S101 - tells the type checker
    return {k: v for k, v in asdict(change.error).items() if v is not None}


def expires_at(job: NewJob) -> int | None:
    """Return when a new job expires if it has not started."""
    times = [time for time in (job.start_by, job.deadline) if time is not None]
    return min(times, default=None)


KEYED = 2
"""The kind of a job with own retention and an idempotency key; without a key: 1."""


def kept_by_queue(job: NewJob) -> int | None:
    """Return the retention kind of a job; `None`: the general retention applies."""
    if not job.kept or job.flow is not None or job.batch is not None:
        return None
    return 1 if job.idempotency_key is None else KEYED


class Tagged(Protocol):
    """Something with tags."""

    tags: Sequence[str]


def tags_text(tagged: Tagged) -> str | None:
    """Return tags for storage: one per line."""
    return "\n".join(tagged.tags) if tagged.tags else None
