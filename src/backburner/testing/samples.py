"""Sample jobs for tests: give the fields that matter, the others have defaults."""

from dataclasses import replace
from itertools import count
from typing import Any

from backburner.domain.groups.batch import NewBatch
from backburner.domain.groups.flow import Edge, NewFlow, NewStep
from backburner.domain.jobs.job import Claim, Instant, Job, JobState, NewJob, Owner

NOON: Instant = 1_767_268_800_000
"""2026-01-01 at noon, UTC: the time of all samples."""

ANN = Owner(tenant="acme", user="ann")
BOB = Owner(tenant="acme", user="bob")

_numbers = count(1)


def a_new_job(**fields: Any) -> NewJob:
    """Return a new job with a unique id."""
    usual = NewJob(
        id=f"job_{next(_numbers):08}",
        owner=ANN,
        capability="greet",
        queue="default",
        input="{}",
        created_at=NOON,
        max_attempts=3,
    )
    return replace(usual, **fields)


def a_new_step(name: str, *after: Edge | str, **fields: Any) -> NewStep:
    """Return a step that runs after others; `before=[…]` makes others wait for it."""
    needs = [Edge(edge) if isinstance(edge, str) else edge for edge in after]
    before = fields.pop("before", ())
    return NewStep(a_new_job(step=name, **fields), needs, before)


def a_new_flow(*steps: NewStep, **fields: Any) -> NewFlow:
    """Return a new flow with a unique id."""
    usual = NewFlow(
        id=f"flow_{next(_numbers):08}", owner=ANN, created_at=NOON, steps=steps
    )
    return replace(usual, **fields)


def a_new_batch(**fields: Any) -> NewBatch:
    """Return a new batch with a unique id."""
    usual = NewBatch(id=f"batch_{next(_numbers):08}", owner=ANN, created_at=NOON)
    return replace(usual, **fields)


def a_claim(**fields: Any) -> Claim:
    """Return a claimed job in its first attempt."""
    usual = Claim(
        seq=1,
        id="job_1",
        token="t" * 16,
        tenant=ANN.tenant,
        user=ANN.user,
        capability="greet",
        queue="default",
        input="{}",
        priority=0,
        rank=1,
        generation=0,
        attempt=1,
        max_attempts=3,
        crashes=0,
        throttled=0,
        deadline=None,
        created_at=NOON,
        ready_at=NOON,
        started_at=NOON,
        request_id=None,
        events=2,
    )
    return usual._replace(**fields)


def a_job(state: JobState = JobState.QUEUED, **fields: Any) -> Job:
    """Return a stored job."""
    usual = Job(
        seq=1,
        id="job_1",
        owner=ANN,
        capability="greet",
        queue="default",
        state=state,
        priority=0,
        generation=0,
        attempt=0,
        max_attempts=3,
        crashes=0,
        throttled=0,
        events=1,
        input="{}",
        created_at=NOON,
    )
    return replace(usual, **fields)
