"""
A real page in a real browser: Chromium, headless, on a server of the test's own.

The page is told what to do by JSON (`Page.asks`) and reports what it saw back to its
own origin, so the test needs no way into the browser: it awaits reports.
"""

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_SECONDS = 90.0
NONE: Mapping[str, str] = {}
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",  # it stays until it is ended
)
HTML = """<!doctype html><title>A page of another origin</title><script>
// One after the other, so that reports arrive in the order of what they report.
let last = Promise.resolve()
const say = (name, type, more = {}) => {
  const body = JSON.stringify({name, type, ...more})
  last = last.then(() => fetch("/said", {method: "POST", body}))
}
function stream({name, url, types}) {
  const source = new EventSource(url)
  for (const type of types)
    source.addEventListener(type, event =>
      say(name, type, {data: JSON.parse(event.data)}))
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) say(name, "closed")
  }
}
function socket({name, url, subscribe}) {
  const opened = new WebSocket(url)
  opened.onopen = () => opened.send(JSON.stringify({type: "subscribe", ...subscribe}))
  opened.onmessage = event => {
    const data = JSON.parse(event.data)
    say(name, data.type, {data})
  }
  opened.onclose = () => say(name, "closed")
}
function get({name, url, options}) {
  fetch(url, options).then(
    async answer => say(name, "answered", {status: answer.status}),
    () => say(name, "blocked"))
}
async function login({name, url, key, then}) {
  const headers = {"Content-Type": "application/json"}
  const send = (path, method, more, body) => fetch(url + path, {
    method, body, credentials: "include", headers: {...headers, ...more}})
  const opened = await send("/v1/session", "POST", {}, JSON.stringify({key}))
  const token = {"X-CSRF-Token": (await opened.json()).csrf_token}
  for (const {step, path, method, shows} of then) {
    const body = method === "POST" ? "{}" : undefined
    const answer = await send(path, method, shows ? token : {}, body)
    say(step, "answered", {status: answer.status})
  }
  say(name, "done", {status: opened.status, cookie: document.cookie})
}
fetch("/asked").then(answer => answer.json()).then(asked => {
  for (const one of asked) ({stream, socket, get, login})[one.do](one)
})
</script>"""


class Page:
    """A page on an origin of its own, and what it reported."""

    def __init__(self, html: str = HTML, scripts: Mapping[str, str] = NONE) -> None:
        self.origin = ""
        self._html, self._scripts = html, scripts
        self.asks: list[dict[str, Any]] = []
        self.said: list[dict[str, Any]] = []
        self._news = asyncio.Condition()

    async def until(self, name: str, kind: str) -> dict[str, Any]:
        """Wait for a report."""

        def found() -> dict[str, Any] | None:
            wanted = (name, kind)
            return next(
                (s for s in self.said if (s["name"], s["type"]) == wanted), None
            )

        async with asyncio.timeout(PATIENCE_SECONDS), self._news:
            await self._news.wait_for(lambda: found() is not None)
        return found() or {}

    async def count(self, name: str, reports: int) -> None:
        """Wait for so many reports of one of its parts."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._news:
            await self._news.wait_for(lambda: len(self.types_of(name)) >= reports)

    def types_of(self, name: str) -> list[str]:
        """Return the kinds of what one of its parts reported, in order."""
        return [said["type"] for said in self.said if said["name"] == name]

    async def show(self, _request: Request) -> Response:
        return HTMLResponse(self._html)

    async def script(self, request: Request) -> Response:
        text = self._scripts[request.path_params["name"]]
        return Response(text, media_type="text/javascript")

    async def asked(self, _request: Request) -> Response:
        return Response(orjson.dumps(self.asks), media_type="application/json")

    async def hear(self, request: Request) -> Response:
        said = orjson.loads(await request.body())
        async with self._news:
            self.said.append(said)
            self._news.notify_all()
        return Response(status_code=204)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self):
        yield


@asynccontextmanager
async def a_page(
    host: str = "localhost", html: str = HTML, scripts: Mapping[str, str] = NONE
) -> AsyncIterator[Page]:
    """
    Serve a page on a free port, under a name of this machine.

    A page of another `html` finds `scripts`, by their names, under `/scripts/`.
    """
    page = Page(html, scripts)
    app = Starlette(
        routes=[
            Route("/", page.show),
            Route("/asked", page.asked),
            Route("/scripts/{name}", page.script),
            Route("/said", page.hear, methods=["POST"]),
        ]
    )
    listener = socket.create_server(("127.0.0.1", 0))
    page.origin = f"http://{host}:{listener.getsockname()[1]}"
    server = _Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield page
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving


@asynccontextmanager
async def visited(page: Page, folder: Path) -> AsyncIterator[None]:
    """Have Chromium show a page while the block runs."""
    browser = await asyncio.create_subprocess_exec(
        program(),
        *OPTIONS,
        f"--user-data-dir={folder}",
        page.origin,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        await browser.wait()


def program() -> str:
    """Find the browser, or skip where it is not installed; in CI that is a failure."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing = "chromium is not installed: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found
