"""The stored steps of a job over HTTP."""

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.blobs.blob import reference
from backburner.domain.errors import (
    BlobMissing,
    BudgetExhausted,
    IllegalTransition,
    JobNotFound,
    PromptRefused,
    TooManyWaiting,
)
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.step import MAX_STEPS, NAMED, StoredStep
from backburner.domain.jobs.wait import WaitRecord
from backburner.engine.run import forking
from backburner.http import audit, headers, usage_wire, wire
from backburner.http.auth import Reader, Writer
from backburner.http.problems import documented
from backburner.http.routes.jobs import json_body
from backburner.http.schemas.jobs import ForkQuote, ForkRequest, JobView, StepList
from backburner.http.state import server_state_of

SHOWN = 1_000
"""Longer results, in characters, are left out of the list."""
REFERENCE = 300
"""What is read if no result is shown: references to contents say how large they are."""

router = APIRouter(tags=["jobs"])
Content = Annotated[bool, Query(description="False: all results are null.")]
Limit = Annotated[int, Query(ge=1, le=MAX_STEPS, description="Steps to return.")]
DryRun = Annotated[bool, Query(description="Store nothing; return an estimate.")]


@router.get(
    "/v1/jobs/{job_id}/steps",
    operation_id="list_steps",
    summary="List the stored steps of a job",
    response_model=StepList,
    responses=documented(JobNotFound),
)
async def steps(
    request: Request,
    caller: Reader,
    job_id: str,
    *,
    content: Content = True,
    limit: Limit = MAX_STEPS,
) -> Response:
    """
    List the steps of a job's handler whose results are stored, oldest first.

    Later runs of the job reuse these results instead of computing them again. Results
    of more than 1,000 characters are left out, with `content=false` all of them.
    Answers of a run that succeeded right
    after its last model call are not stored. `suspected` is the sum of model calls that
    were open when their worker was lost: they may have been charged, but are not part
    of the usage; their tokens are estimates. `waits` are the waits of the handler and
    the signals that the job received, including those that no wait has used.
    """
    engine = server_state_of(request).engine
    job = await engine.find(job_id, caller.visible)
    stored = await engine.steps_of(job.seq, most=SHOWN if content else REFERENCE)
    known = await engine.known_run(job) if any(s.is_open for s in stored) else None
    places = {step.key: n for n, step in enumerate(forking.stored_steps(stored), 1)}
    listed = [step for step in stored if step.size or step.is_open]
    items = [
        {"n": places.get(step.key), **_view(step, known, shows=content)}
        for step in listed[:limit]
    ]
    waits = [_wait(one) for one in await engine.waits_of(job.seq, most=SHOWN)]
    suspected = _suspected(stored, known)
    more = len(listed) > limit
    return wire.answer(
        {"items": items, "more": more, "waits": waits, "suspected": suspected}
    )


@router.post(
    "/v1/jobs/{job_id}/fork",
    operation_id="fork_job",
    summary="Run a job again from one of its steps, as a new job",
    status_code=202,
    response_model=JobView,
    responses={
        200: {"model": ForkQuote, "description": "The estimate, with `dry_run`."},
        202: {"description": "The new job is stored.", "headers": headers.LOCATION},
        **documented(
            PromptRefused,
            JobNotFound,
            IllegalTransition,
            BlobMissing,
            BudgetExhausted,
            TooManyWaiting,
            body=True,
            writes=True,
        ),
    },
    openapi_extra={"requestBody": json_body("ForkRequest")},
)
async def fork(
    request: Request, caller: Writer, job_id: str, *, dry_run: DryRun = False
) -> Response:
    """
    Submit a new job that reuses the results of the steps before `from`.

    With a new `input`, the job reuses those results in their order, without comparing
    the requests; this is refused with 409 if steps ran concurrently. A job that has not
    ended and a step of a flow are refused with 409. With `dry_run` nothing is stored:
    the response is an estimate. Otherwise the fork is recorded in the
    audit log.
    """
    server_state = server_state_of(request)
    asked = await server_state.read(request, ForkRequest)
    has_input = "input" in asked.model_fields_set
    made = await forking.fork(
        server_state.engine,
        job_id,
        asked.start,
        orjson.dumps(asked.input) if has_input else forking.SAME,
        owner=caller.owner,
        key=caller.key,
        dry_run=dry_run,
        entries=[audit.entry_of(request, caller, "job.forked", job_id)],
    )
    if made.quote is not None:
        names = [step.name for step in made.reused]
        return wire.answer({"reused": names, "quote": usage_wire.quote(made.quote)})
    told = {"Location": wire.location(made.job.id), "Retry-After": "1"}
    return wire.answer(wire.receipt(made.job, JobState.QUEUED), 202, told)


def _state(step: StoredStep, known: int | None) -> str:
    """Return the state of a step; the run `known` is active or succeeded."""
    if step.size or not step.is_open:
        return "stored"
    return "begun" if step.epoch == known else "in_doubt"


def _suspected(steps: Sequence[StoredStep], known: int | None) -> dict[str, int]:
    """Add up the open model calls of lost runs, which may have been charged."""
    calls, tokens = 0, 0
    for step in steps:
        if step.kind != NAMED:
            lost = step.doubts + (_state(step, known) == "in_doubt")
            calls += lost
            tokens += lost * step.expected
    return {"calls": calls, "input_tokens": tokens}


def _wait(wait: WaitRecord) -> dict[str, Any]:
    return {
        "name": wait.name,
        "reason": wait.kind,
        "state": wait.outcome or "open",
        "generation": wait.generation,
        "asked_at": wire.time(wait.asked_at),
        "until": wire.time(wait.until),
        "decided_at": wire.time(wait.decided_at),
        "size": wait.size,
        "value": None if wait.value is None else orjson.loads(wait.value),
    }


def _view(step: StoredStep, known: int | None, *, shows: bool) -> dict[str, Any]:
    named = reference(step.result) if step.result else None
    is_shown = shows and bool(step.result) and named is None
    return {
        "name": step.name,
        "kind": step.kind,
        "state": _state(step, known),
        "doubts": step.doubts,
        "run": step.epoch,
        "stored_at": wire.time(step.at),
        "duration_ms": step.duration_ms,
        "size": step.size if named is None else named.size,
        "result": orjson.loads(step.result) if is_shown else None,
    }
