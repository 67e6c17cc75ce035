"""
The dashboard: web pages under `/ui` that use only the public JSON API.

The files are read once and served from memory, compressed if the browser accepts it.
Every path below `/ui/` that is not a file is a view of the single page.
"""

import gzip
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from backburner.http import static
from backburner.http.auth import PUBLIC, has_keys, require

PREFIX: Final = "/ui"
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    **static.HEADERS,
    "Content-Security-Policy": CSP,
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}

router = APIRouter(include_in_schema=False, dependencies=[require(PUBLIC)])


@router.get(PREFIX)
async def enter() -> Response:
    """Redirect to the first view."""
    return RedirectResponse(f"{PREFIX}/", 308)


@router.get(f"{PREFIX}/{{path:path}}")
async def page(request: Request, path: str) -> Response:
    """Send a file, or the page if the path is a view."""
    found = pages().get(path) if path != static.INDEX else None
    if found is None:
        is_file = "." in path.rpartition("/")[2] and path != static.INDEX
        if is_file and not path.startswith(_NAMED_BY_USERS):
            raise HTTPException(404)
        found = index(is_keyed=has_keys(request))
    return static.answer(found, request, HEADERS, compressed())


_NAMED_BY_USERS: Final = ("jobs/", "flows/", "batches/", "incidents/")
"""Views whose last part is a name or id, in which a dot does not mean a file."""


@cache
def pages() -> Mapping[str, static.Page]:
    """Return the files by their path below `/ui/`."""
    return static.read("the dashboard", files("backburner.http") / "pages" / "ui")


@cache
def index(*, is_keyed: bool) -> static.Page:
    """Return the page, which states whether there is a login."""
    page = pages()[static.INDEX]
    if not is_keyed:
        return page
    content = page.content.replace(b"<html ", b'<html data-login="key" ', 1)
    return page._replace(content=content, etag=f'{page.etag[:-1]}-k"')


@cache
def compressed() -> Mapping[str, bytes]:
    """Return the gzipped files by ETag."""
    sent = (*pages().values(), index(is_keyed=True))
    return {page.etag: gzip.compress(page.content, 9, mtime=0) for page in sent}
