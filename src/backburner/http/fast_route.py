"""A fast route for the most frequent requests, which bypasses FastAPI's overhead."""

from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Receive, Scope, Send


class FastRoute(APIRoute):
    """
    Calls `endpoint(request, caller)` directly.

    FastAPI's own call of a function costs more than all the rest of a submission. It
    still generates the OpenAPI description, from the same declaration.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        (admission,) = self.dependant.dependencies
        admit: Any = admission.call

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            response = await endpoint(request, await admit(request))
            await response(scope, receive, send)

        self.app = app
