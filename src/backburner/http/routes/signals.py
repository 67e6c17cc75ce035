"""Signals to jobs over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    InvalidInput,
    JobNotFound,
    SignalConflict,
    SignalTooLarge,
    StoreFull,
    StoreUnavailable,
)
from backburner.http import body, wire
from backburner.http.auth import Caller, require
from backburner.http.problems import (
    BodyTooLarge,
    MalformedBody,
    UnsupportedMediaType,
    documented,
)
from backburner.http.schemas.jobs import SignalView
from backburner.http.state import server_state_of

MAX_BODY = 128 * 1024
"""JSON may be written with more bytes than its value has."""

VALUE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The value, any JSON of up to 64 KiB.",
        "content": {body.JSON: {"schema": {}}},
    }
}
"""Describes a body that is a signal's value."""

router = APIRouter(tags=["jobs"])
Writer = Annotated[Caller, require("jobs:write")]


@router.post(
    "/v1/jobs/{job_id}/signals/{name}",
    operation_id="signal_job",
    summary="Send a signal to a job",
    status_code=201,
    response_model=SignalView,
    responses={
        200: {"model": SignalView, "description": "The same signal was stored before."},
        201: {"description": "The signal is stored."},
        **documented(
            MalformedBody,
            UnsupportedMediaType,
            JobNotFound,
            InvalidInput,
            SignalConflict,
            SignalTooLarge,
            BodyTooLarge,
            StoreUnavailable,
            StoreFull,
        ),
    },
    openapi_extra=VALUE,
)
async def signal(request: Request, caller: Writer, job_id: str, name: str) -> Response:
    """
    Store a value that the job's handler waits for, or will wait for.

    A job that waits starts at once. A name takes one value: the same again answers
    200, another one 409, as does a job that is over or a wait that has timed out.
    """
    value = await body.read_value(request, limit=MAX_BODY)
    engine = server_state_of(request).engine
    is_new = await engine.signal(job_id, name, value, caller.owner)
    told = {"job_id": job_id, "name": name}
    return wire.answer(told, 201 if is_new else 200)
