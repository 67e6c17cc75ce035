"""The route that lists capabilities."""

from typing import Any

from fastapi import APIRouter
from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import JsonSchemaMode
from starlette.requests import Request
from starlette.responses import Response

from backburner.engine.registry import Capability
from backburner.http import wire
from backburner.http.auth import Reader
from backburner.http.problems import documented
from backburner.http.schemas.jobs import CapabilityList
from backburner.http.state import server_state_of

router = APIRouter(tags=["operations"])


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
