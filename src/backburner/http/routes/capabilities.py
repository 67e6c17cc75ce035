"""Routes that list capabilities and workers."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import JsonSchemaMode
from starlette.requests import Request
from starlette.responses import Response

from backburner.engine.registry import Capability
from backburner.http import wire
from backburner.http.auth import Caller, require
from backburner.http.problems import documented
from backburner.http.schemas.jobs import CapabilityList, WorkerList
from backburner.http.state import server_state_of

router = APIRouter(tags=["operations"])

Reader = Annotated[Caller, require("jobs:read")]
Operator = Annotated[Caller, require("queues:read")]


@router.get(
    "/v1/capabilities",
    operation_id="list_capabilities",
    summary="List the capabilities",
    response_model=CapabilityList,
    responses=documented(),
)
async def capabilities(request: Request, _caller: Reader) -> Response:
    """List the capabilities with the JSON schemas of their inputs and outputs."""
    registry = server_state_of(request).engine.registry
    return wire.answer({"items": [_capability(found) for found in registry]})


@router.get(
    "/v1/workers",
    operation_id="list_workers",
    summary="List the workers",
    response_model=WorkerList,
    responses=documented(),
)
async def workers(request: Request, _caller: Operator) -> Response:
    """List who works, the oldest first."""
    items = [
        {
            "id": worker.id,
            "host": worker.host,
            "pid": worker.pid,
            "slots": worker.slots,
            "queues": worker.queues,
            "started_at": wire.time(worker.started_at),
        }
        for worker in await server_state_of(request).engine.store.workers()
    ]
    return wire.answer({"items": items})


def _capability(found: Capability[Any, Any]) -> dict[str, Any]:
    return {
        "name": found.name,
        "description": found.description,
        "queue": found.queue,
        "timeout_seconds": found.timeout.total_seconds(),
        "max_attempts": found.retry.max_attempts,
        "input_schema": _schema(found.input, "validation"),
        "output_schema": _schema(found.output, "serialization"),
    }


def _schema(adapter: TypeAdapter[Any], mode: JsonSchemaMode) -> dict[str, Any]:
    try:
        return adapter.json_schema(mode=mode)
    except PydanticInvalidForJsonSchema:
        return {}
