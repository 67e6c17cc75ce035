"""The stored steps of a job over HTTP."""

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.blob import reference
from backburner.domain.errors import JobNotFound, StoreUnavailable
from backburner.domain.step import NAMED, StoredStep
from backburner.http import wire
from backburner.http.auth import Caller, require
from backburner.http.door import door_of
from backburner.http.problems import documented
from backburner.http.schemas import StepList

SHOWN = 1_000
"""Results of more characters are left out of the list."""

router = APIRouter(tags=["jobs"])
Reader = Annotated[Caller, require("jobs:read")]


@router.get(
    "/v1/jobs/{job_id}/steps",
    operation_id="list_steps",
    summary="List the stored steps of a job",
    response_model=StepList,
    responses=documented(JobNotFound, StoreUnavailable),
)
async def steps(request: Request, caller: Reader, job_id: str) -> Response:
    """
    List the steps of a job's handler whose results are stored, the oldest first.

    A later run of the job uses these results instead of computing them again. A result
    of more than 1,000 characters is left out. The answers of a run that succeeded right
    after its last model call are not stored. `suspected` adds up model calls that were
    under way when their worker was lost: they may have been charged, but are not part
    of the usage; their tokens are estimates.
    """
    engine = door_of(request).engine
    job = await engine.find(job_id, caller.visible)
    stored = await engine.steps_of(job.seq, most=SHOWN)
    known = await engine.known_run(job) if any(s.is_open for s in stored) else None
    items = [_view(step, known) for step in stored if step.size or step.is_open]
    return wire.answer({"items": items, "suspected": _suspected(stored, known)})


def _state(step: StoredStep, known: int | None) -> str:
    """Say what is known of a step; the run `known` is under way or succeeded."""
    if step.size or not step.is_open:
        return "stored"
    return "begun" if step.epoch == known else "in_doubt"


def _suspected(steps: Sequence[StoredStep], known: int | None) -> dict[str, int]:
    """Add up the model calls that may have been charged though nobody has their end."""
    calls, tokens = 0, 0
    for step in steps:
        if step.kind != NAMED:
            lost = step.doubts + (_state(step, known) == "in_doubt")
            calls += lost
            tokens += lost * step.expected
    return {"calls": calls, "input_tokens": tokens}


def _view(step: StoredStep, known: int | None) -> dict[str, Any]:
    named = reference(step.result) if step.result else None
    is_shown = bool(step.result) and named is None
    return {
        "name": step.name,
        "kind": step.kind,
        "state": _state(step, known),
        "doubts": step.doubts,
        "run": step.epoch,
        "stored_at": wire.time(step.at),
        "size": step.size if named is None else named.size,
        "result": orjson.loads(step.result) if is_shown else None,
    }
