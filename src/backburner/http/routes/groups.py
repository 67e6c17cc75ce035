"""Helpers that the routes of flows and batches share."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from backburner.domain.errors import (
    BudgetExhausted,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    PromptRefused,
    StoreFull,
    StoreUnavailable,
    TooManyWaiting,
    UnknownCapability,
)
from backburner.domain.groups.flow import Edge
from backburner.domain.jobs.job import NewJob
from backburner.engine.flow import NOTHING, Flow, Planned
from backburner.engine.submit.submission import GroupOptions
from backburner.http import headers, wire
from backburner.http.prefer import APPLIED
from backburner.http.problems import (
    BodyTooLarge,
    MalformedBody,
    MalformedRequest,
    TooManyBodies,
    UnsupportedMediaType,
    documented,
)
from backburner.http.schemas.groups import FlowRequest, StepRequest
from backburner.http.schemas.jobs import followed_by, told_to

GIVEN: Final = {"tokens", "share", "metadata"}
"""Options that a request is compared by only where it has them."""
AT_ONCE: Final = 100
"""Up to this number of jobs is validated at once, more in a thread."""

REFUSALS: Final = (
    MalformedBody,
    MalformedRequest,
    PromptRefused,
    UnknownCapability,
    BodyTooLarge,
    UnsupportedMediaType,
    InvalidInput,
    IllegalTransition,
    IdempotencyConflict,
    BudgetExhausted,
    TooManyWaiting,
    TooManyBodies,
    StoreUnavailable,
    StoreFull,
)
RECEIPT: Final = {**headers.LOCATION, **headers.REPLAYED, **APPLIED}
ACCEPTED: Final = {
    "description": "All of it is durable and will reach its end.",
    "headers": {**RECEIPT, **headers.RETRY_AFTER},
}
SHOWN: Final = {**headers.RETRY_AFTER, **headers.ETAG, **APPLIED}


def submitted(view: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describe for OpenAPI what the submit of a flow or batch answers."""
    ended = {
        "model": view,
        "description": "It ended within the requested wait.",
        "headers": RECEIPT,
    }
    return {200: ended, 202: ACCEPTED, **documented(*REFUSALS)}


def forget_inputs(stored: Iterable[NewJob]) -> None:
    """Release inputs, which may be large, before the caller waits."""
    for job in stored:
        job.input = ""


def flow_of(asked: FlowRequest) -> Flow:
    """Convert a request to a flow of the engine."""
    flow = Flow()
    flow.steps.extend(map(_planned, asked.steps))
    return flow


def options_of(
    asked: FlowRequest, origin: Mapping[str, Any], key: str | None = None
) -> GroupOptions:
    """Return the options of a flow."""
    return GroupOptions(
        deadline=asked.deadline,
        tags=asked.tags,
        callback=told_to(asked.callback),
        idempotency_key=key,
        **origin,
    )


def _planned(asked: StepRequest) -> Planned:
    has_input = "input" in asked.model_fields_set
    return Planned(
        asked.name,
        asked.capability,
        orjson.dumps(asked.input) if has_input else NOTHING,
        tuple(Edge(n.step, n.otherwise == "continue") for n in asked.needs),
        options={
            "queue": asked.queue,
            "priority": asked.priority,
            "run_at": asked.run_at,
            "start_by": asked.start_by,
            "max_attempts": asked.max_attempts,
            "tags": asked.tags,
            "callback": told_to(asked.callback),
            # Only if given, so that repeats of older requests still match.
            **asked.model_dump(include=GIVEN, exclude_none=True),
            **_completion(asked),
        },
    )


def _completion(asked: StepRequest) -> dict[str, Any]:
    completion = followed_by(asked.completion)
    return {} if completion is None else {"completion": completion}


def shares_of(flows: Iterable[FlowRequest]) -> list[str | None]:
    """Return the shares that the steps of flows use."""
    return [step.share for flow in flows for step in flow.steps]


def answer_version(
    body: Mapping[str, Any], if_none_match: str | None, told: dict[str, str]
) -> Response:
    """Respond with a resource and its ETag, or with 304 if the caller has it."""
    content = orjson.dumps(body)
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    told |= {"ETag": etag, "Cache-Control": "private, no-cache"}
    if headers.matches(if_none_match, etag):
        return Response(status_code=304, headers=told)
    return Response(content, 200, told, wire.MEDIA_TYPE)
