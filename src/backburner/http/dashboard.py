"""
The dashboard: web pages under `/ui` that use only the public JSON API.

The files are read once and served from memory, compressed if the browser accepts it.
Every path below `/ui/` that is not a file is a view of the single page.

So that the page is painted before anything else has been read, it contains the style
sheet and the script that chooses the theme; the policy names their digests. It names
the other files by a path with a digest of all of them (`/ui/-/DIGEST/core.js`), so that
browsers keep them and need not ask whether they have changed.
"""

import base64
import gzip
import hashlib
import re
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
    "default-src 'none'; script-src 'self' %s; style-src 'self' %s; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The policy; `%s` are replaced by the digests of what the page contains."""
SCRIPT: Final = "theme.js"
STYLE: Final = "ui.css"
IMMUTABLE: Final = "public, max-age=31536000, immutable"
_VERSIONED: Final = re.compile(r"-/(?P<digest>[0-9a-f]{32})/(?P<path>.+)")
_REFERENCE: Final = re.compile(rb'((?:src|href)="/ui/)')

router = APIRouter(include_in_schema=False, dependencies=[require(PUBLIC)])


@router.get(PREFIX)
async def enter() -> Response:
    """Redirect to the first view."""
    return RedirectResponse(f"{PREFIX}/", 308)


@router.get(f"{PREFIX}/{{path:path}}")
async def page(request: Request, path: str) -> Response:
    """Send a file, or the page if the path is a view."""
    headers = usual_headers()
    if versioned := _VERSIONED.fullmatch(path):
        path = versioned["path"]
        # Another release's digest, while releases change: this file, but not for long.
        if versioned["digest"] == version():
            headers = {**headers, "Cache-Control": IMMUTABLE}
    found = pages().get(path) if path != static.INDEX else None
    if found is None:
        if versioned:
            raise HTTPException(404)
        is_file = "." in path.rpartition("/")[2] and path != static.INDEX
        if is_file and not path.startswith(_NAMED_BY_USERS):
            raise HTTPException(404)
        found = index(is_keyed=has_keys(request))
    return static.answer(found, request, headers, compressed())


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
    content = page.content
    for name, element in _CONTAINED.items():
        opening, closing = element[1].split(b"%s")
        inside = opening + pages()[name].content + closing
        content = content.replace(element[0], inside, 1)
    content = _REFERENCE.sub(rb"\1-/%s/" % version().encode(), content)
    if is_keyed:
        content = content.replace(b"<html ", b'<html data-login="key" ', 1)
    return page._replace(content=content, etag=f'"{_digest(content)}"')


_CONTAINED: Final = {
    SCRIPT: (b'<script src="/ui/theme.js"></script>', b"<script>%s</script>"),
    STYLE: (b'<link rel="stylesheet" href="/ui/ui.css" />', b"<style>%s</style>"),
}
"""What refers to a file in the page, and what replaces that when it is sent."""


@cache
def version() -> str:
    """Return a digest of all files."""
    return _digest("".join(page.etag for page in pages().values()).encode())


@cache
def usual_headers() -> Mapping[str, str]:
    """Return the headers of every answer."""
    digests = (
        base64.b64encode(hashlib.sha256(pages()[name].content).digest()).decode()
        for name in (SCRIPT, STYLE)
    )
    return {
        **static.HEADERS,
        "Content-Security-Policy": CSP % tuple(f"'sha256-{one}'" for one in digests),
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


@cache
def compressed() -> Mapping[str, bytes]:
    """Return the gzipped files by ETag."""
    sent = (*pages().values(), index(is_keyed=True), index(is_keyed=False))
    return {page.etag: gzip.compress(page.content, 9, mtime=0) for page in sent}
