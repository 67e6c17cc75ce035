"""
Flows: jobs that depend on other jobs.

A flow is a graph of steps without circles, written in the order in which it runs. A
step's place in that order is also the order of its key in the store, so whoever locks
steps by key never waits in a circle.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.jobs.job import FINAL, Instant, JobState, NewJob, Owner
from backburner.domain.jobs.transitions import DEPENDENCY_FAILED

FROM_NEEDS: Final = "@needs"
"""The input of a step that takes its prerequisites' outputs. No JSON text begins so."""

MAX_STEPS: Final = 10_000
MAX_EDGES: Final = 100_000
MAX_NAME: Final = 100
SHOWN: Final = 8
"""How many steps of a circle are named."""


class FlowState(StrEnum):
    """What has become of a flow."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing happens any more by itself."""
        return self is not FlowState.RUNNING


class Edge(NamedTuple):
    """What a step waits for."""

    step: str
    continues: bool = False
    """Whether it runs also if that step did not succeed, and sees so."""


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step as it is asked for: a job, and what it waits for."""

    job: NewJob
    needs: Sequence[Edge] = ()
    before: Sequence[str] = ()
    """Steps that wait for it as well, though they were there before it."""


@dataclass(slots=True)
class NewFlow:
    """A flow as it is asked for, its steps in an order in which they may run."""

    id: str
    owner: Owner
    created_at: Instant
    steps: Sequence[NewStep]
    deadline: Instant | None = None
    batch: int | None = None
    callback: str | None = None
    tags: Sequence[str] = ()
    request_id: str | None = None
    traceparent: str | None = None
    idempotency_key: str | None = None
    body_hash: str | None = None


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """The durable record, as it is read back."""

    seq: int
    id: str
    owner: Owner
    state: FlowState
    generation: int
    events: int
    created_at: Instant
    finished_at: Instant | None = None
    deadline: Instant | None = None
    batch: int | None = None
    callback: str | None = None
    tags: tuple[str, ...] = field(default=())
    request_id: str | None = None
    traceparent: str | None = None
    body_hash: str | None = None
    batch_id: str | None = None
    size: int = 0
    """How many steps it has."""


class StepStatus(NamedTuple):
    """Where a step stands, for the decision to open a flow again."""

    seq: int
    state: JobState
    code: str | None
    generation: int
    needs: Sequence[tuple[int, bool]]
    """The key of each prerequisite, and whether the step runs whatever it comes to."""


def in_order(steps: Mapping[str, Iterable[Edge]]) -> list[str]:
    """Return the names so that each comes after what it needs; refuse circles."""
    _check_names(steps)
    waiting = {name: {edge.step for edge in needs} for name, needs in steps.items()}
    dependents: dict[str, list[str]] = {name: [] for name in steps}
    for name, needed in waiting.items():
        for other in needed:
            dependents[other].append(name)
    ready = [name for name, needed in waiting.items() if not needed]
    for name in ready:
        for dependent in dependents[name]:
            waiting[dependent].discard(name)
            if not waiting[dependent]:
                ready.append(dependent)
    if len(ready) < len(steps):
        circle = " → ".join(_shortened(_circle(waiting)))
        raise InvalidInput(
            "the steps depend on each other in a cycle",
            [FieldError("steps", f"{circle} is a cycle")],
        )
    return ready


def _check_names(steps: Mapping[str, Iterable[Edge]]) -> None:
    for name, needs in steps.items():
        met: set[str] = set()
        for edge in needs:
            if edge.step not in steps:
                raise refused(name, f"needs {edge.step[:MAX_NAME]!r}: no such step")
            if edge.step in met:
                raise refused(name, f"needs {edge.step[:MAX_NAME]!r} twice")
            met.add(edge.step)


def refused(step: str, message: str) -> InvalidInput:
    """Say what is wrong with a step."""
    path = f"steps.{step[:MAX_NAME]}"
    return InvalidInput(f"{path}: {message}", [FieldError(path, message)])


class Reopening(NamedTuple):
    """What a retry by hand of some steps means to a flow."""

    retried: Sequence[int]
    """Those of them that go on, …"""
    refused: Sequence[int]
    """… and those that cannot: a step that they need did not succeed."""
    again: Mapping[int, int]
    """Steps that were given up and wait again, with their new generations."""
    open: Mapping[int, int]
    """How many others each step waits for that waits for something else now."""


def reopened(retried: Collection[int], steps: Sequence[StepStatus]) -> Reopening:
    """
    Say what becomes of a flow's steps when some that failed are retried.

    One that was cancelled because of a prerequisite waits again if each of its
    prerequisites may still succeed, or need not. So does one that is retried itself.
    """
    states = {step.seq: step.state for step in steps}
    going_on = _going_on({*retried}, steps, states)
    again = {
        step.seq: step.generation + 1
        for step in steps
        if step.seq in going_on and step.seq not in retried
    }
    open_ = {
        step.seq: sum(states[seq] not in FINAL for seq, _ in step.needs)
        for step in steps
        if step.seq in going_on
        or (
            step.state is JobState.BLOCKED and any(s in going_on for s, _ in step.needs)
        )
    }
    return Reopening(
        [seq for seq in retried if seq in going_on],
        [seq for seq in retried if seq not in going_on],
        again,
        open_,
    )


def _going_on(
    retried: set[int], steps: Sequence[StepStatus], states: dict[int, JobState]
) -> set[int]:
    """Return the steps that are to be done again; note so in their states."""
    left = [
        step
        for step in steps
        if step.seq in retried
        or (step.state is JobState.CANCELLED and step.code == DEPENDENCY_FAILED)
    ]
    going_on: set[int] = set()
    # Mostly one round: few steps come before one that they need.
    while found := {step.seq for step in left if _may_go_on(step, retried, states)}:
        going_on |= found
        left = [step for step in left if step.seq not in found]
    return going_on


def _may_go_on(
    step: StepStatus, retried: set[int], states: dict[int, JobState]
) -> bool:
    needed = [(states[seq], continues) for seq, continues in step.needs]
    is_possible = all(
        continues or state is JobState.SUCCEEDED or state not in FINAL
        for state, continues in needed
    )
    is_waiting = any(state not in FINAL for state, _ in needed)
    if not is_possible or not (is_waiting or step.seq in retried):
        return False
    states[step.seq] = JobState.BLOCKED if is_waiting else JobState.QUEUED
    return True


def _circle(waiting: Mapping[str, set[str]]) -> list[str]:
    """Walk from an unfinished step to what it waits for until one comes twice."""
    name = next(name for name, needed in waiting.items() if needed)
    path: dict[str, int] = {}
    while name not in path:
        path[name] = len(path)
        name = min(waiting[name])
    return [*list(path)[path[name] :], name][::-1]


def _shortened(circle: list[str]) -> list[str]:
    if len(circle) <= SHOWN:
        return circle
    return [*circle[: SHOWN - 2], "…", circle[-1]]
