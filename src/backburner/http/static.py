"""
Static pages of applications, read once and served from memory.

Requests are looked up in a table of the files that existed at start-up, so no path can
lead out of the folder. Pages may not load anything from other origins.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from backburner.domain.errors import ConfigurationError
from backburner.http.auth import PUBLIC, require

PREFIX: Final = "/apps"
INDEX: Final = "index.html"
MOST_FILES: Final = 1_000
MOST_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of one application's pages, in bytes."""
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; media-src 'self'; manifest-src 'self'; connect-src 'self'%s; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The policy; `%s` is replaced by other origins that a page may connect to."""
HEADERS: Final = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
UNKNOWN: Final = "application/octet-stream"
TYPES: Final[Mapping[str, str]] = {
    ".avif": "image/avif",
    ".css": "text/css; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".gif": "image/gif",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".ogg": "audio/ogg",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".wav": "audio/wav",
    ".webm": "video/webm",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
"""A fixed table: that of the machine may differ, and types decide what is executed."""
NOT_COMPRESSED: Final[Mapping[str, bytes]] = {}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


class Page(NamedTuple):
    """A file as it is served."""

    content: bytes
    media_type: str
    etag: str


def routes(
    name: str, folder: Traversable, connects: Iterable[str] = ()
) -> Sequence[BaseRoute]:
    """
    Return the routes that serve a folder under `/apps/NAME/`.

    Its pages may send requests to this server and to the origins in `connects`.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"application {name!r} has pages, so its name must be one to 64 of a-z, "
            "0-9, _, . and -"
        )
    pages = read(name, folder)
    base = f"{PREFIX}/{name}"
    others = "".join(f" {origin}" for origin in connects)
    headers = {**HEADERS, "Content-Security-Policy": CSP % others}

    async def page(request: Request) -> Response:
        """Send a file; for a folder, its `index.html`."""
        path = request.path_params["path"]
        found = pages.get(f"{path}{INDEX}" if not path or path[-1] == "/" else path)
        if found is None:
            raise HTTPException(404)
        return answer(found, request, headers)

    async def enter() -> Response:
        """Redirect to the folder, so that relative links work."""
        return RedirectResponse(f"{base}/", 308)

    router = APIRouter(include_in_schema=False, dependencies=[require(PUBLIC)])
    router.add_api_route(base, enter)
    router.add_api_route(f"{base}/{{path:path}}", page)
    return router.routes


def answer(
    page: Page,
    request: Request,
    usual: Mapping[str, str],
    compressed: Mapping[str, bytes] = NOT_COMPRESSED,
) -> Response:
    """
    Send a file, or 304 if the browser has it.

    `compressed` has gzipped files by ETag, for browsers that accept them.
    """
    headers = {**usual, "ETag": page.etag}
    known = request.headers.get("if-none-match", "")
    if page.media_type == UNKNOWN:
        headers["Content-Disposition"] = "attachment"
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    if tags & {page.etag, "*"}:
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = page.media_type
    packed = compressed.get(page.etag)
    if packed is None or "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(page.content, 200, headers)
    return Response(packed, 200, {**headers, "Content-Encoding": "gzip"})


def read(app: str, folder: Traversable) -> dict[str, Page]:
    """Read an application's files by their path within the folder."""
    if not isinstance(folder, Traversable):
        raise ConfigurationError(
            f"application {app!r}: `pages` is a {type(folder).__name__}, not a folder "
            'such as importlib.resources.files("songs") / "pages"'
        )
    if not folder.is_dir():
        raise ConfigurationError(f"application {app!r}: no folder {folder} for pages")
    pages: dict[str, Page] = {}
    size = 0
    for path, file in _files(app, folder, folder, ""):
        content = file.read_bytes()
        size += len(content)
        if len(pages) >= MOST_FILES or size > MOST_BYTES:
            raise ConfigurationError(
                f"application {app!r}: {folder} has more than {MOST_FILES} files or "
                f"{MOST_BYTES} bytes; serve them from elsewhere"
            )
        digest = hashlib.sha256(content).hexdigest()[:32]
        kind = TYPES.get(Path(path).suffix.lower(), UNKNOWN)
        pages[path] = Page(content, kind, f'"{digest}"')
    return pages


def _files(
    app: str, root: Traversable, folder: Traversable, prefix: str
) -> Iterator[tuple[str, Traversable]]:
    """Yield the files below a folder, except hidden ones; refuse links out of it."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if isinstance(entry, Path) and isinstance(root, Path):
            target, top = entry.resolve(), root.resolve()
            if not target.is_relative_to(top):
                raise ConfigurationError(
                    f"application {app!r}: {entry} is a link out of its folder of pages"
                )
        if entry.is_dir():
            yield from _files(app, root, entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry
