"""Helpers that the routes of flows and batches share."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import orjson
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
from backburner.http.auth import Caller, require
from backburner.http.prefer import APPLIED
from backburner.http.problems import (
    BodyTooLarge,
    MalformedBody,
    MalformedRequest,
    TooManyBodies,
    UnsupportedMediaType,
)
from backburner.http.schemas.groups import FlowRequest, StepRequest
from backburner.http.schemas.jobs import followed_by, told_to

Reader = Annotated[Caller, require("jobs:read")]
Writer = Annotated[Caller, require("jobs:write")]
Retrier = Annotated[Caller, require("dead-letters:retry")]

AT_ONCE: Final = 100
"""So many jobs are checked while others wait; more, beside them."""

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
SHOWN: Final = {**headers.RETRY_AFTER, **headers.ETAG, **APPLIED}


def forget_inputs(stored: Iterable[NewJob]) -> None:
    """Let go of what may be large: the caller may wait, and nobody needs it."""
    for job in stored:
        job.input = ""


def flow_of(asked: FlowRequest) -> Flow:
    """Return a flow as the engine takes it."""
    flow = Flow()
    flow.steps.extend(map(_planned, asked.steps))
    return flow


def options_of(
    asked: FlowRequest, origin: Mapping[str, Any], key: str | None = None
) -> GroupOptions:
    """Return how a flow is to be kept."""
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
            # Named only where they are given: an older repeat must stay a repeat.
            **asked.model_dump(include={"tokens", "share"}, exclude_none=True),
            **_completion(asked),
        },
    )


def _completion(asked: StepRequest) -> dict[str, Any]:
    completion = followed_by(asked.completion)
    return {} if completion is None else {"completion": completion}


def shares_of(flows: Iterable[FlowRequest]) -> list[str | None]:
    """Return whose shares the steps of flows take."""
    return [step.share for flow in flows for step in flow.steps]


def answer_version(
    body: Mapping[str, Any], if_none_match: str | None, told: dict[str, str]
) -> Response:
    """Send something with the name of its version, or that it is known already."""
    content = orjson.dumps(body)
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    told |= {"ETag": etag, "Cache-Control": "private, no-cache"}
    if headers.matches(if_none_match, etag):
        return Response(status_code=304, headers=told)
    return Response(content, 200, told, wire.MEDIA_TYPE)
