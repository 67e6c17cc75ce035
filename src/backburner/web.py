"""
The public door for rooms with routes: who calls, what they sent, what is answered.

A room's contract is its own, its status codes included; `Refusal` carries them. What
is not said here is answered as everywhere: problems by RFC 9457, and a request's id.
"""

from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from backburner.domain.errors import InvalidInput
from backburner.engine.submission import GroupOptions
from backburner.engine.telemetry import registry
from backburner.http import body
from backburner.http.auth import Caller, require
from backburner.http.body import parse
from backburner.http.problems import (
    Refusal,
    documented,
    field_errors,
    request_id_of,
)
from backburner.http.wire import answer, time
from backburner.ports.log import log

__all__ = [
    "Caller",
    "GroupOptions",
    "Refusal",
    "answer",
    "checked",
    "documented",
    "invalid",
    "json_body",
    "log",
    "parse",
    "read",
    "read_bytes",
    "registry",
    "request_id_of",
    "require",
    "time",
]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def checked(adapter: TypeAdapter[T], value: Any) -> T:
    """Return plain data as a value; what does not match is a 400."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        told = error.errors(
            include_url=False, include_context=False, include_input=False
        )
        fields = field_errors(told)
        raise invalid(InvalidInput("the request is not valid", fields)) from None


async def read(request: Request, model: type[M]) -> M:
    """Return the body as a model; one that does not match is a 400."""
    limit = request.app.state.door.settings.body_limit
    try:
        return await body.read(request, model, limit=limit)
    except InvalidInput as error:
        raise invalid(error) from None


async def read_bytes(request: Request) -> bytes:
    """Return the body as it is."""
    return await body.read_bytes(request, request.app.state.door.settings.body_limit)


def json_body(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Describe for OpenAPI a body that a route reads by itself; one of plain fields."""
    schema = adapter.json_schema()
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def invalid(error: InvalidInput) -> Refusal:
    """Say by a 400 what of a request does not match."""
    return Refusal(400, error.code, str(error), title="Not valid", fields=error.fields)
