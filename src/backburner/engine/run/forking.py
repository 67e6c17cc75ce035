"""Forks: a new job that reuses the first steps of another job."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from backburner.domain.blobs.blob import BlobKey, Reference, reference
from backburner.domain.errors import IllegalTransition, InvalidInput
from backburner.domain.jobs.job import Job, NewJob, Submitted, Visibility
from backburner.domain.jobs.step import (
    DRAFT,
    FORK_TAG,
    StepResult,
    StoredStep,
    fork_key,
)
from backburner.engine.submit.quoting import Quote
from backburner.engine.submit.submission import LOCAL, Options
from backburner.ports.store.keys import AuditEntry

if TYPE_CHECKING:
    from backburner.engine.engine import Engine

MOST_SHOWN: Final = 20
"""How many steps an error lists."""
SAME: Final = object()
"""Use the input of the forked job."""


class Fork(NamedTuple):
    """A fork that is stored, or would be."""

    job: NewJob
    reused: Sequence[StoredStep]
    quote: Quote | None = None
    submitted: Submitted | None = None


def stored_steps(steps: Sequence[StoredStep]) -> list[StoredStep]:
    """Return the steps of a handler that a fork can reuse, in order."""
    return [s for s in steps if s.size and s.kind != DRAFT and s.is_top]


def steps_before(
    steps: Sequence[StoredStep], start: str | int, *, in_order: bool
) -> list[StoredStep]:
    """Return the steps before `start`, a name or a number from 1."""
    places = [n for n, s in enumerate(steps, 1) if start in (n, s.name)]
    if not places and start != len(steps) + 1:
        shown = [f"{n} {step.name}" for n, step in enumerate(steps[:MOST_SHOWN], 1)]
        if len(steps) > MOST_SHOWN:
            shown.append(f"{len(steps) - MOST_SHOWN} more")
        raise InvalidInput(
            "from: the job has no stored step of this name or number; it has "
            f"{', '.join(shown) or 'none'}"
        )
    reused = [*steps[: places[0] - 1 if places else len(steps)]]
    if in_order and any(step.is_concurrent for step in reused):
        raise IllegalTransition(
            "steps of this job ran concurrently, so they have no order: it can be "
            "forked with its own input only"
        )
    return reused


async def fork(  # noqa: PLR0913 - whose, from where, with what
    engine: "Engine",
    job_id: str,
    start: str | int,
    value: Any = SAME,
    *,
    owner: Visibility = LOCAL,
    key: str | None = None,
    dry_run: bool = False,
    entries: Sequence[AuditEntry] = (),
) -> Fork:
    """
    Submit a new job that reuses the results of the steps before `start`.

    With a new input the results are used in their order, without comparing the
    requests. With `dry_run` nothing is stored, and the fork has a quote. `entries` are
    added to the audit log with the new job.
    """
    job = await engine.find(job_id, owner)
    _check(job)
    is_same = value is SAME
    text = await engine.payloads.text(job.input) if is_same else ""
    new = engine.prepare(
        job.capability, text.encode() if is_same else value, _options(job, key)
    )
    # An estimate needs the names only.
    found = await engine.steps_of(job.seq, most=0 if dry_run else None)
    stored = stored_steps(found)
    reused = steps_before(stored, start, in_order=not is_same)
    if dry_run:
        return Fork(new, reused, quote=await engine.quoting.quote(new))
    results = [
        await _result(engine, new, n, step, keeps_key=is_same)
        for n, step in enumerate(reused, 1)
    ]
    data = orjson.dumps({"from": job.id, "steps": len(reused)}).decode()
    submitted = await engine.submit_fork(new, results, data, entries)
    return Fork(new, reused, submitted=submitted)


def _check(job: Job) -> None:
    if job.flow is not None:
        raise IllegalTransition(
            f"job {job.id} is a step of a flow and cannot be forked; retry it"
        )
    if not job.state.is_final:
        raise IllegalTransition(
            f"job {job.id} is {job.state}: it can be forked when it has ended"
        )


def _options(job: Job, key: str | None) -> Options:
    tags = [tag for tag in job.tags if not tag.startswith(FORK_TAG)]
    return Options(
        queue=job.queue,
        priority=job.priority,
        tags=[*tags, FORK_TAG + job.id],
        metadata=job.metadata,
        max_attempts=job.max_attempts,
        owner=job.owner,
        key=key,
    )


async def _result(
    engine: "Engine", new: NewJob, n: int, step: StoredStep, *, keeps_key: bool
) -> StepResult:
    """Build a result for the new job; one in the blob store is copied."""
    result = step.result
    if reference(result) is not None:
        content = (await engine.payloads.text(result)).encode()
        key = BlobKey(new.id, f"step-fork-{n}")
        await engine.payloads.put(key, content)
        result = str(Reference(key, len(content)))
    name = step.key if keeps_key else fork_key(n)
    return StepResult(0, "", name, step.kind, step.name, 0, new.created_at, result)
