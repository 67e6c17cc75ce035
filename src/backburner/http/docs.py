"""The API reference page, without external resources."""

from importlib.resources import files
from typing import Final

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.http import wire
from backburner.http.auth import PUBLIC, require
from backburner.http.state import server_state_of

router = APIRouter(include_in_schema=False, dependencies=[require(PUBLIC)])

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_PAGES = files("backburner.http") / "pages"


@router.get("/")
async def root(request: Request) -> Response:
    """Describe the server, with links to its documentation."""
    told = {
        "name": "backburner",
        "version": server_state_of(request).version,
        "dashboard": "/ui/",
        "docs": "/docs",
        "openapi": "/openapi.json",
        "jobs": "/v1/jobs",
    }
    return wire.answer(told)


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(orjson.dumps(request.app.openapi()), media_type=wire.MEDIA_TYPE)


@router.get("/docs")
async def page() -> Response:
    """Return the API reference page."""
    return _file("docs.html", "text/html")


@router.get("/docs/docs.js")
async def script() -> Response:
    """Return the page's script."""
    return _file("docs.js", "text/javascript")


@router.get("/docs/docs.css")
async def style() -> Response:
    """Return the page's style sheet."""
    return _file("docs.css", "text/css")


def _file(name: str, media_type: str) -> Response:
    return Response((_PAGES / name).read_bytes(), 200, HEADERS, media_type)
