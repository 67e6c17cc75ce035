"""Questions that jobs ask people, over HTTP."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.access import ANSWER
from backburner.domain.jobs.job import Tenant, Visibility
from backburner.domain.jobs.wait import Question
from backburner.http import audit, body, headers, wire
from backburner.http.auth import Caller, require
from backburner.http.problems import (
    documented,
)
from backburner.http.routes.signals import MAX_BODY, stored, storing
from backburner.http.schemas.jobs import QuestionPage
from backburner.http.shared_answers import shareable
from backburner.http.state import server_state_of

router = APIRouter(tags=["questions"])
Reader = Annotated[Caller, require("jobs:read", or_else=ANSWER)]
Answerer = Annotated[Caller, require("jobs:write", or_else=ANSWER)]
Limit = Annotated[int, Query(ge=1, le=100)]


@router.get(
    "/v1/questions",
    operation_id="list_questions",
    summary="List open questions, newest first",
    response_model=QuestionPage,
    responses={
        200: {"description": "A page of questions.", "headers": headers.LINK},
        **documented(),
    },
)
@shareable
async def listing(
    request: Request, caller: Reader, cursor: str | None = None, limit: Limit = 50
) -> Response:
    """
    List the questions of jobs that wait for a person to answer.

    A key with the scope `questions:answer` sees those of its whole tenant.
    """
    found = await server_state_of(request).engine.questions(
        caller.visible if ANSWER not in caller.scopes else _reach(caller),
        before=wire.read_cursor(cursor),
        limit=limit + 1,
    )
    return wire.page(request, found, limit=limit, write=_view)


@router.post(
    "/v1/jobs/{job_id}/questions/{name}/answer",
    operation_id="answer_question",
    summary="Answer a question of a job",
    **storing("answer"),
)
async def answer(
    request: Request, caller: Answerer, job_id: str, name: str
) -> Response:
    """
    Answer a question; the job continues at once.

    The first answer counts: sending it again returns 200, sending a different one
    returns 409. The audit log records who answered an open question.
    """
    engine = server_state_of(request).engine
    value = await body.read_value(request, limit=MAX_BODY)
    job = await engine.find(job_id, _reach(caller))
    asked = await engine.question(job, name, value)
    if asked is not None:
        target = f"{asked.job}/{asked.name}"
        await audit.record(request, caller, "question.answered", target)
    is_new = await engine.answer(job.id, name, value, job.owner)
    return stored(job.id, name, is_new=is_new)


def _reach(caller: Caller) -> Visibility:
    """Return the owners whose questions a caller may answer."""
    if ANSWER in caller.scopes and not caller.names_user:
        return Tenant(caller.owner.tenant)
    return caller.owner


def _view(found: Question) -> dict[str, Any]:
    here = wire.location(found.job)
    asked = orjson.loads(found.question)
    return {
        "job_id": found.job,
        "name": found.name,
        "user": found.owner.user,
        "capability": found.capability,
        "choices": None,
        "schema": None,
        "error": None,
        "default": None,
        **asked,
        "has_default": "default" in asked,
        "asked_at": wire.time(found.asked_at),
        "until": wire.time(found.until),
        "links": {"job": here, "answer": f"{here}/questions/{found.name}/answer"},
    }
