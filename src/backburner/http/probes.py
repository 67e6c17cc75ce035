"""
Health and metrics of a worker, for probes and Prometheus.

A thread with its own event loop responds, so that a handler that blocks the worker's
loop is reported instead of making the probe hang. No API key is needed: the address is
loopback unless the operator chooses another.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from http import HTTPStatus
from socket import socket
from typing import Any, Final, NamedTuple

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backburner.domain.errors import StoreUnavailable
from backburner.engine.observability import telemetry
from backburner.http.problems import MEDIA_TYPE
from backburner.http.protocol import config
from backburner.http.routes.health import METRICS_TYPE
from backburner.http.state import READY_SECONDS, Readiness
from backburner.http.wire import MEDIA_TYPE as JSON
from backburner.settings import Settings

TURN_SECONDS: Final = 5.0
"""A worker is ready only if its event loop runs a new task within this time."""
STOP_SECONDS: Final = 5.0
"""The maximum time for the thread to end."""
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _Reason(NamedTuple):
    """Why the worker is not ready or not alive."""

    code: str
    detail: str


BLOCKED: Final = _Reason(
    "EVENT_LOOP_BLOCKED",
    "a handler blocks the event loop: it must not wait or compute without `await`",
)
SILENT: Final = _Reason(StoreUnavailable.code, "the store does not answer")
STOPPING: Final = _Reason("STOPPING", "the worker is shutting down")


class Probes:
    """The state of a worker, seen from outside its event loop."""

    def __init__(
        self,
        ping: Callable[[], Coroutine[Any, Any, None]],
        *,
        blocked_seconds: float,
        unavailable: Sequence[str] = (),
    ) -> None:
        """
        Take a function that pings the store; call it within the worker's event loop.

        If that loop is blocked for `blocked_seconds`, the worker's leases expire, and
        `/livez` requests a restart. `unavailable` are applications that do not run.
        """
        self._worker = asyncio.get_running_loop()
        self._readiness = Readiness()
        self._ping = ping
        self._blocked_seconds = blocked_seconds
        self._unavailable = unavailable
        self._turn: Future[None] | None = None
        self._turn_asked = 0.0
        self.is_stopping = False

    async def alive(self) -> _Reason | None:
        """Return why the process should be restarted; `None` if it is healthy."""
        turn = self._next_turn()
        waited = asyncio.get_running_loop().time() - self._turn_asked
        is_blocked = not turn.done() and waited > self._blocked_seconds
        return BLOCKED if is_blocked else None

    async def ready(self) -> _Reason | None:
        """Return why the worker cannot work now; `None` if it can."""
        if self.is_stopping:
            return STOPPING
        if not await _is_done(self._next_turn(), TURN_SECONDS):
            return BLOCKED
        asked = self._in_worker(self._readiness.check(self._ping))
        if not await _is_done(asked, READY_SECONDS + TURN_SECONDS):
            asked.cancel()
            return SILENT if self._next_turn().done() else BLOCKED
        error = asked.exception()
        return SILENT if error is not None else None

    def status(self) -> dict[str, Any]:
        """Return the status of a ready worker, like the server's `/readyz`."""
        if self._unavailable:
            return {"status": "degraded", "unavailable": list(self._unavailable)}
        return {"status": "ok"}

    def _next_turn(self) -> Future[None]:
        """Schedule a task in the worker's loop, one for all concurrent probes."""
        if self._turn is None or self._turn.done():
            self._turn_asked = asyncio.get_running_loop().time()
            self._turn = self._in_worker(_nothing())
        return self._turn

    def _in_worker(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._worker)


async def _nothing() -> None:
    pass


async def _is_done(asked: Future[None], seconds: float) -> bool:
    done, _ = await asyncio.wait([asyncio.wrap_future(asked)], timeout=seconds)
    return bool(done)


def build(probes: Probes, version: str) -> Starlette:
    """Return the application with the three routes."""

    async def livez(_request: Request) -> Response:
        return await _answer(probes.alive, lambda: {"status": "ok"})

    async def readyz(_request: Request) -> Response:
        return await _answer(probes.ready, probes.status)

    async def metrics(_request: Request) -> Response:
        telemetry.build_info.labels(version).set(1)
        return Response(telemetry.metrics(), 200, HEADERS, METRICS_TYPE)

    routes = [
        Route("/livez", livez),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]
    return Starlette(routes=routes)


async def _answer(
    check: Callable[[], Awaitable[_Reason | None]], status: Callable[[], dict[str, Any]]
) -> Response:
    reason = await check()
    if reason is None:
        return Response(orjson.dumps(status()), 200, HEADERS, JSON)
    problem = {
        "type": "about:blank",
        "title": "The worker is not ready",
        "status": HTTPStatus.SERVICE_UNAVAILABLE,
        **reason._asdict(),
    }
    return Response(orjson.dumps(problem), 503, HEADERS, MEDIA_TYPE)


class ProbeServer:
    """A thread that serves the probes on a listening socket."""

    def __init__(
        self, probes: Probes, settings: Settings, version: str, listener: socket
    ) -> None:
        self._server = _Server(config(build(probes, version), settings))
        self._listener = listener
        self._thread = threading.Thread(
            target=self._run, name="backburner-probes", daemon=True
        )

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving; return when the thread has ended, or after a time limit."""
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._server.serve([self._listener]))


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield
