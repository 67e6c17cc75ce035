"""The error, event and rank of a state change, for both databases."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, Protocol, TypeVar

import orjson

from backburner.domain.jobs.job import Claim, NewJob
from backburner.domain.jobs.transitions import Change

A = TypeVar("A")

TRACE = "trace"
"""Under which a stack is stored with an event: `as_events` sets it apart."""

KEY_LIFETIME_MS = 24 * 60 * 60 * 1000
"""How long an idempotency key is good for."""


class Numbered(Protocol):
    """Something about one job."""

    @property
    def seq(self) -> int:
        """The job's key."""
        ...


def turns(asks: Sequence[Numbered]) -> Iterator[dict[int, int]]:
    """
    Yield rounds of asks by job, as indexes: two for one job go one after the other.

    In one statement a stale ask would stand in the way of the one that holds.
    """
    waiting: Sequence[int] = range(len(asks))
    while waiting:
        turn: dict[int, int] = {}
        waiting = [i for i in waiting if turn.setdefault(asks[i].seq, i) != i]
        yield turn


def as_given(batches: Sequence[Sequence[Any]], answers: Sequence[A]) -> list[list[A]]:
    """Deal answers out to callers, as many as each asked for."""
    given: list[list[A]] = []
    first = 0
    for batch in batches:
        given.append([*answers[first : first + len(batch)]])
        first += len(batch)
    return given


def in_turn(claims: Iterable[Claim]) -> list[Claim]:
    """Sort claims by whose turn it is: by priority, the highest first, then rank."""
    ordered = sorted(claims, key=_BY_RANK)
    if len({claim.priority for claim in ordered}) > 1:
        ordered.sort(key=_BY_PRIORITY, reverse=True)  # of equal ones the order stays
    return ordered


_BY_RANK = attrgetter("rank", "seq")
_BY_PRIORITY = attrgetter("priority")


def as_json(value: Any) -> str:
    """Write JSON as it is stored."""
    return orjson.dumps(value).decode()


def error_json(change: Change) -> str | None:
    """Write a change's error as it is stored and shown."""
    return None if change.error is None else as_json(_problem(change))


def event_json(change: Change) -> str | None:
    """Write what a change's event tells besides its type."""
    data = dict(change.data or {})
    if change.error is not None:
        data["error"] = _problem(change)
    if change.run_at is not None:
        data["run_at"] = change.run_at
    if change.trace is not None:
        data[TRACE] = change.trace
    return as_json(data) if data else None


def wait_json(change: Change) -> str | None:
    """Write what a change has its job wait for, as it is stored."""
    return None if change.wait is None else as_json(list(change.wait))


def _problem(change: Change) -> dict[str, Any]:
    assert change.error is not None  # noqa: S101 - tells the type checker
    return {k: v for k, v in asdict(change.error).items() if v is not None}


def expires_at(job: NewJob) -> int | None:
    """Return when a new job is over if it has not started."""
    times = [time for time in (job.start_by, job.deadline) if time is not None]
    return min(times, default=None)


KEYED = 2
"""Of a job that is kept by its queue and has an idempotency key; 1: without."""


def kept_by_queue(job: NewJob) -> int | None:
    """Say how a job's queue keeps it; `None`: it is kept like all others."""
    if not job.kept or job.flow is not None or job.batch is not None:
        return None
    return 1 if job.idempotency_key is None else KEYED


class Tagged(Protocol):
    """Something with tags."""

    tags: Sequence[str]


def tags_text(tagged: Tagged) -> str | None:
    """Write tags as they are stored: one a line."""
    return "\n".join(tagged.tags) if tagged.tags else None
