"""Signals to jobs over HTTP."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    JobNotFound,
    SignalConflict,
    SignalTooLarge,
)
from backburner.http import audit, body, wire
from backburner.http.auth import Writer
from backburner.http.problems import (
    BodyTooLarge,
    MalformedBody,
    UnsupportedMediaType,
    documented,
)
from backburner.http.schemas.jobs import SignalView
from backburner.http.state import server_state_of

MAX_BODY = 128 * 1024
"""JSON may be encoded with more bytes than its value has."""


def storing(what: str) -> dict[str, Any]:
    """Describe a route that stores a value for a job: a signal or an answer."""
    return {
        "status_code": 201,
        "response_model": SignalView,
        "responses": {
            200: {
                "model": SignalView,
                "description": f"The same {what} was stored before.",
            },
            201: {"description": f"The {what} is stored."},
            **documented(
                MalformedBody,
                UnsupportedMediaType,
                JobNotFound,
                SignalConflict,
                SignalTooLarge,
                BodyTooLarge,
                writes=True,
            ),
        },
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "description": "The value, any JSON of up to 64 KiB.",
                "content": {body.JSON: {"schema": {}}},
            }
        },
    }


def stored(job_id: str, name: str, *, is_new: bool) -> Response:
    """Respond that a value is stored, or was stored before."""
    return wire.answer({"job_id": job_id, "name": name}, 201 if is_new else 200)


router = APIRouter(tags=["jobs"])


@router.post(
    "/v1/jobs/{job_id}/signals/{name}",
    operation_id="signal_job",
    summary="Send a signal to a job",
    **storing("signal"),
)
async def signal(request: Request, caller: Writer, job_id: str, name: str) -> Response:
    """
    Store a value that the job's handler awaits, now or later.

    A waiting job is queued at once. A name takes one value: repeating it returns 200; a
    different value, a job that has ended and a wait that has timed out return 409.
    """
    value = await body.read_value(request, limit=MAX_BODY)
    engine = server_state_of(request).engine
    if caller.owner != caller.own:
        job = await engine.find(job_id, caller.owner)
        await audit.record(request, caller, "job.signalled", job.id)
    is_new = await engine.signal(job_id, name, value, caller.owner)
    return stored(job_id, name, is_new=is_new)
