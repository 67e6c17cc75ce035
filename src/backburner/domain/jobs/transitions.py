"""
All state transitions of a job; no other module decides them.

A function takes the job's data and returns a `Change`. A store applies it with one
statement that matches the expected row: by `(seq, token)` for a running job, otherwise
by `(seq, state, generation)`. If no row matches, another writer was faster.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple, assert_never

from backburner.domain.errors import IllegalTransition, Problem
from backburner.domain.events import event
from backburner.domain.jobs.job import (
    FINAL,
    Claim,
    Instant,
    Job,
    JobState,
    Wait,
    WaitReason,
)
from backburner.domain.jobs.outcome import (
    Cancel,
    Done,
    Expired,
    Failed,
    HandedBack,
    Outcome,
    Snooze,
    Suspension,
)

ALLOWED: Final[Mapping[JobState, frozenset[JobState]]] = {
    JobState.BLOCKED: frozenset(
        {JobState.QUEUED, JobState.SCHEDULED, JobState.FAILED, JobState.CANCELLED},
    ),
    JobState.SCHEDULED: frozenset(
        {JobState.SCHEDULED, JobState.QUEUED, JobState.FAILED, JobState.CANCELLED},
    ),
    JobState.WAITING: frozenset(
        {JobState.QUEUED, JobState.FAILED, JobState.CANCELLED},
    ),
    JobState.QUEUED: frozenset(
        {
            JobState.SCHEDULED,
            JobState.RUNNING,
            JobState.FAILED,
            JobState.CANCELLED,
        },
    ),
    JobState.RUNNING: frozenset(
        {
            JobState.SUCCEEDED,
            JobState.SCHEDULED,
            JobState.WAITING,
            JobState.QUEUED,
            JobState.FAILED,
            JobState.CANCELLED,
        }
    ),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(
        {JobState.BLOCKED, JobState.QUEUED, JobState.SCHEDULED},
    ),
    JobState.CANCELLED: frozenset({JobState.BLOCKED}),
}

EXPIRED: Final = "EXPIRED"
UNEXPECTED: Final = "UNEXPECTED"
WORKER_LOST: Final = "WORKER_LOST"
TIMEOUT: Final = "TIMEOUT"
SETTLEMENT_FAILED: Final = "SETTLEMENT_FAILED"
DEPENDENCY_FAILED: Final = "DEPENDENCY_FAILED"

APART_EVENTS: Final = 10
"""Up to this number of events, a job that must run alone waits the minimum …"""
APART_LONGEST: Final = timedelta(minutes=5)
"""… and with more events longer, up to this, plus up to as much again at random."""

SHORTEST_WAIT: Final = timedelta(milliseconds=100)
"""The minimum of a wait that uses up no attempt, so that jobs do not spin."""


class Change(NamedTuple):
    """A transition of a job, and the event that records it."""

    to: JobState
    event: str
    at: Instant
    data: Mapping[str, Any] | None = None
    output: str | None = None
    error: Problem | None = None
    fingerprint: str | None = None
    run_at: Instant | None = None
    attempt: int | None = None
    """The new number of attempts; `None` leaves it as it is."""
    crashes: int | None = None
    throttled: int | None = None
    generation: int | None = None
    trace: str | None = None
    """The stack trace of an error, for authorised readers only."""
    wait: Wait | None = None
    """What the job waits for, if it is suspended."""
    place: str | None = None
    """File and line of the error's exception."""


class Limits(NamedTuple):
    """How often and how long a job may be put back before it fails."""

    crashes: int = 3
    """How many workers may be lost before it fails with `WORKER_LOST`."""
    throttled: timedelta = timedelta(hours=24)
    """The maximum total of waits that use up no attempt."""


def settle(  # noqa: PLR0911 - one for each outcome
    claim: Claim, outcome: Outcome, *, now: Instant, backoff: timedelta, limits: Limits
) -> Change:
    """Return the transition for the outcome of a run."""
    match outcome:
        case Done():
            return succeed(outcome, now=now)
        case Failed():
            change = _settle_failed(claim, outcome, now, backoff, limits)
            trace, place = outcome.trace or (None, None)
            return change._replace(trace=trace, place=place)
        case Snooze(delay, reason):
            problem = Problem("SNOOZED", reason, retryable=True)
            return _put_off(claim, event.SCHEDULED, problem, delay, now, limits)
        case Cancel(reason):
            return _cancel(reason, now)
        case HandedBack():
            return hand_back(claim, now=now)
        case Expired():
            return _expire(claim.capability, now)
        case Suspension(wait, wake_at=wake_at):
            return _suspend(claim, wait, wake_at, now)
        case _:
            assert_never(outcome)


def succeed(done: Done, *, now: Instant) -> Change:
    """End a running job with its output."""
    return Change(JobState.SUCCEEDED, event.SUCCEEDED, now, output=done.output)


def hand_back(job: Claim | Job, *, now: Instant) -> Change:
    """Queue a running job again that its worker will not finish; no attempt is used."""
    return Change(
        JobState.QUEUED,
        event.QUEUED,
        now,
        data={"outcome": "handed_back"},
        attempt=job.attempt - 1,
    )


def stall(job: Job, *, now: Instant, limits: Limits) -> Change:
    """Return a running job to its queue after its worker stopped sending heartbeats."""
    crashes = job.crashes + 1
    if crashes >= limits.crashes:
        problem = Problem(
            WORKER_LOST, f"its worker was lost {crashes} times during a run"
        )
        return _fail(job.capability, problem, now)._replace(crashes=crashes)
    return Change(
        JobState.QUEUED,
        event.STALLED,
        now,
        data={"worker": job.worker, "crashes": crashes},
        attempt=job.attempt - 1,
        crashes=crashes,
    )


def signal(name: str, *, now: Instant) -> Change:
    """Queue a job that waits for a signal."""
    return Change(JobState.QUEUED, event.SIGNALLED, now, data={"name": name})


def resume(claim: Claim, name: str, *, now: Instant) -> Change:
    """Queue a running job that would wait for a signal that has arrived meanwhile."""
    return signal(name, now=now)._replace(attempt=claim.attempt - 1)


def is_last_chance(claim: Claim, limits: Limits) -> bool:
    """Return whether the job fails if one more worker is lost."""
    return 0 < claim.crashes >= limits.crashes - 1


def keep_apart(claim: Claim, least: timedelta, *, now: Instant, roll: float) -> Change:
    """
    Delay a job that must not run beside other jobs that lost their workers.

    Each delay takes three events, so delays grow with the number of events: some
    thousand events in half a day, then three in five minutes.
    """
    growth = max(1.0, claim.events / APART_EVENTS)
    delay = min(least * growth, APART_LONGEST) * (1 + roll)
    problem = Problem(
        "SNOOZED", "it runs separately because workers were lost", retryable=True
    )
    waiting = _wait(event.SCHEDULED, problem, max(delay, SHORTEST_WAIT), now)
    return waiting._replace(attempt=claim.attempt - 1)


def cancel(job: Job, reason: str, *, now: Instant) -> Change:
    """End a job in any state that is not final."""
    if job.state in FINAL:
        raise IllegalTransition(f"job {job.id} is {job.state}: it cannot be cancelled")
    return _cancel(reason, now)


def cancel_all(reason: str, *, now: Instant) -> Change:
    """End every job of a flow or batch that has not ended."""
    return _cancel(reason, now)


def give_up(*, now: Instant) -> Change:
    """End a step because one of its prerequisites did not succeed."""
    problem = Problem(DEPENDENCY_FAILED, "a step that it depends on did not succeed")
    return Change(JobState.CANCELLED, event.CANCELLED, now, error=problem)


def expire(job: Job, *, now: Instant) -> Change:
    """End a job whose deadline has passed."""
    return _expire(job.capability, now)


def retry(job: Job, *, now: Instant, run_at: Instant | None = None) -> Change:
    """Queue a dead letter again, with fresh attempts, in its next generation."""
    if job.state is not JobState.FAILED:
        raise IllegalTransition(
            f"job {job.id} is {job.state}: only a failed job can be retried"
        )
    generation = job.generation + 1
    waits = run_at is not None and run_at > now
    return Change(
        JobState.SCHEDULED if waits else JobState.QUEUED,
        event.SCHEDULED if waits else event.QUEUED,
        now,
        data={"generation": generation},
        run_at=run_at if waits else None,
        attempt=0,
        crashes=0,
        throttled=0,
        generation=generation,
    )


def reschedule(job: Job, run_at: Instant | None, *, now: Instant) -> Change | None:
    """
    Change the start of a job; by default, to now. `None` if nothing changes.

    The error of its last attempt is kept.
    """
    if job.state not in {JobState.SCHEDULED, JobState.QUEUED}:
        raise IllegalTransition(
            f"job {job.id} is {job.state}: only a scheduled or queued job can be "
            "rescheduled"
        )
    if job.wait is not None:
        raise IllegalTransition(
            f"job {job.id} cannot be rescheduled: its handler decides when it continues"
        )
    if run_at is not None and run_at > now:
        to, name = JobState.SCHEDULED, event.SCHEDULED
    elif job.state is JobState.QUEUED:
        return None
    else:
        to, name, run_at = JobState.QUEUED, event.QUEUED, now
    data = {"rescheduled": True}
    return Change(to, name, now, data=data, error=job.error, run_at=run_at)


def check_reprioritised(job: Job) -> None:
    """Raise `IllegalTransition` if the job is running or has ended."""
    if job.state is JobState.RUNNING or job.state in FINAL:
        raise IllegalTransition(
            f"job {job.id} is {job.state}: its priority has no effect any more"
        )


def retry_all(
    jobs: Sequence[Job], *, now: Instant, rate: float | None = None
) -> list[Change]:
    """Queue dead letters in this order, at once or at a rate per second."""
    pause = 0.0 if rate is None else 1000 / rate
    return [
        retry(job, now=now, run_at=now + int(pause * place))
        for place, job in enumerate(jobs)
    ]


def fingerprint(capability: str, problem: Problem, place: str | None = None) -> str:
    """
    Return an identifier for a kind of failure, by which dead letters are grouped.

    For an unexpected exception it is based on `place`, a file and line, because its
    message may vary.
    """
    is_unforeseen = place is not None and problem.code == UNEXPECTED
    message = place if is_unforeseen else _VARYING.sub("#", problem.message)[:200]
    named = f"{capability}\0{problem.code}\0{message}"
    return hashlib.sha256(named.encode(errors="replace")).hexdigest()[:16]


_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-f-]{8,}\b|\d+", re.IGNORECASE)


def _settle_failed(
    claim: Claim, failed: Failed, now: Instant, backoff: timedelta, limits: Limits
) -> Change:
    problem = Problem(failed.code, failed.message, failed.retryable)
    place = None if failed.trace is None else failed.trace.place
    if not failed.retryable:
        return _fail(claim.capability, problem, now, place)
    if failed.retry_after is not None:
        problem = replace(problem, retry_after=failed.retry_after.total_seconds())
        backoff = max(backoff, failed.retry_after)
        if not failed.is_paid:
            return _throttle(claim, failed, problem, now, limits)
    if claim.attempt < claim.max_attempts:
        return _wait(event.RETRYING, problem, backoff, now)
    return _fail(claim.capability, problem, now, place)


def _throttle(
    claim: Claim, failed: Failed, problem: Problem, now: Instant, limits: Limits
) -> Change:
    delay = failed.retry_after or timedelta()
    change = _put_off(claim, event.THROTTLED, problem, delay, now, limits)
    return change._replace(data={"lane": failed.lane}) if failed.lane else change


def _suspend(claim: Claim, wait: Wait, wake_at: Instant | None, now: Instant) -> Change:
    """
    End the run of a handler that waits, until the first of its waits is over.

    A job that waits for a signal is queued at its deadline at the latest, and expires
    then. So no index of waiting jobs by deadline is needed.
    """
    data = {"wait": {k: v for k, v in wait._asdict().items() if v is not None}}
    times = [time for time in (wait.until, wake_at) if time is not None]
    run_at: Instant | None
    if wait.reason in _TIMED:
        soonest = now + SHORTEST_WAIT // timedelta(milliseconds=1)
        run_at = max(min(times, default=0), soonest)
        to, name = JobState.SCHEDULED, event.SCHEDULED
    else:
        if claim.deadline is not None:
            times.append(claim.deadline)
        run_at = min(times, default=None)
        to, name = JobState.WAITING, event.WAITING
    return Change(
        to, name, now, data=data, run_at=run_at, attempt=claim.attempt - 1, wait=wait
    )


_TIMED = frozenset({WaitReason.SLEEP, WaitReason.LANE})
"""The reasons for which a job waits for a time only."""


def _fail(
    capability: str, problem: Problem, now: Instant, place: str | None = None
) -> Change:
    return Change(
        JobState.FAILED,
        event.FAILED,
        now,
        error=problem,
        fingerprint=fingerprint(capability, problem, place),
    )


def _expire(capability: str, now: Instant) -> Change:
    problem = Problem(EXPIRED, "its deadline passed before it finished")
    return _fail(capability, problem, now)


def _cancel(reason: str, now: Instant) -> Change:
    return Change(
        JobState.CANCELLED, event.CANCELLED, now, error=Problem("CANCELLED", reason)
    )


def _wait(name: str, problem: Problem, delay: timedelta, now: Instant) -> Change:
    return Change(
        JobState.SCHEDULED,
        name,
        now,
        error=problem,
        run_at=now + delay // timedelta(milliseconds=1),
    )


def _put_off(
    claim: Claim,
    name: str,
    problem: Problem,
    delay: timedelta,
    now: Instant,
    limits: Limits,
) -> Change:
    delay = max(delay, SHORTEST_WAIT)
    throttled = claim.throttled + delay // timedelta(milliseconds=1)
    if throttled > limits.throttled // timedelta(milliseconds=1):
        expired = Problem(
            EXPIRED, f"it was throttled for longer than {limits.throttled} in total"
        )
        return _fail(claim.capability, expired, now)
    waiting = _wait(name, problem, delay, now)
    return waiting._replace(attempt=claim.attempt - 1, throttled=throttled)
