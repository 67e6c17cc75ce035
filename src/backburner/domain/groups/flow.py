"""
Flows: jobs that depend on other jobs.

A flow is an acyclic graph of steps, stored in an order in which they can run. That
order is also the order of their keys in the store, so locking steps in the order of
their keys cannot deadlock.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.groups.group import GroupRecord, NewGroup
from backburner.domain.jobs.job import FINAL, Instant, JobState, NewJob
from backburner.domain.jobs.transitions import DEPENDENCY_FAILED

FROM_NEEDS: Final = "@needs"
"""The input of a step that takes its prerequisites' outputs; never valid JSON."""

MAX_STEPS: Final = 10_000
MAX_EDGES: Final = 100_000
MAX_NAME: Final = 100
SHOWN: Final = 8
"""How many steps of a cycle an error message names."""


class FlowState(StrEnum):
    """The state of a flow."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the flow has ended: only a retry by hand changes it."""
        return self is not FlowState.RUNNING


class Edge(NamedTuple):
    """A prerequisite of a step."""

    step: str
    continues: bool = False
    """Whether the step runs even if this prerequisite did not succeed."""


@dataclass(frozen=True, slots=True)
class NewStep:
    """A validated step: its job and its prerequisites."""

    job: NewJob
    needs: Sequence[Edge] = ()
    before: Sequence[str] = ()
    """Steps of the existing flow that will depend on this one as well."""


@dataclass(slots=True, kw_only=True)
class NewFlow(NewGroup):
    """A validated flow; its steps are in an order in which they can run."""

    steps: Sequence[NewStep]
    deadline: Instant | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRecord(GroupRecord):
    """A stored flow."""

    state: FlowState
    deadline: Instant | None = None
    batch: int | None = None
    batch_id: str | None = None
    size: int = 0
    """The number of its steps."""


class StepStatus(NamedTuple):
    """A step as it is read for the decision to reopen its flow."""

    seq: int
    state: JobState
    code: str | None
    generation: int
    needs: Sequence[tuple[int, bool]]
    """The key of each prerequisite, and whether the step runs even if it fails."""


def in_order(steps: Mapping[str, Iterable[Edge]]) -> list[str]:
    """Sort steps so that each follows its prerequisites; refuse cycles."""
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
        seen: set[str] = set()
        for edge in needs:
            if edge.step not in steps:
                raise refused(name, f"needs {edge.step[:MAX_NAME]!r}: no such step")
            if edge.step in seen:
                raise refused(name, f"needs {edge.step[:MAX_NAME]!r} twice")
            seen.add(edge.step)


def refused(step: str, message: str) -> InvalidInput:
    """Return the error for an invalid step."""
    path = f"steps.{step[:MAX_NAME]}"
    return InvalidInput(f"{path}: {message}", [FieldError(path, message)])


class Reopening(NamedTuple):
    """The changes to a flow when steps of it are retried by hand."""

    retried: Sequence[int]
    """The steps that are retried."""
    refused: Sequence[int]
    """The steps that cannot be retried: a prerequisite did not succeed."""
    again: Mapping[int, int]
    """Steps that were given up and are blocked again, with their new generations."""
    open: Mapping[int, int]
    """For each changed step, how many of its prerequisites have not ended."""


def reopened(retried: Collection[int], steps: Sequence[StepStatus]) -> Reopening:
    """
    Return the changes to a flow when some of its failed steps are retried.

    A step that was cancelled because of a prerequisite is blocked again if all of its
    prerequisites can still succeed or may fail. So is a retried step.
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
    """Return the steps that run again, and update their states."""
    left = [
        step
        for step in steps
        if step.seq in retried
        or (step.state is JobState.CANCELLED and step.code == DEPENDENCY_FAILED)
    ]
    going_on: set[int] = set()
    # Usually one round: few steps precede one of their prerequisites.
    while ready := {step.seq for step in left if _may_go_on(step, retried, states)}:
        going_on |= ready
        left = [step for step in left if step.seq not in ready]
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
    """Follow unfinished prerequisites until a step occurs twice: that is a cycle."""
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
