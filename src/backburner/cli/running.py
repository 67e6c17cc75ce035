"""
Runs the platform in this process until a signal, then shuts it down.

Imported only by the commands that need it, because it loads server and database.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import uvicorn
import uvloop

from backburner.app import App, WorkerPhase
from backburner.backburner import Backburner
from backburner.cli import faults, printing
from backburner.cli.exits import STOP_SIGNALS, Exit, needing_the_store
from backburner.domain.errors import BackburnerError, ConfigurationError
from backburner.engine.observability import telemetry
from backburner.ports.log import log
from backburner.settings import Settings, fault
from backburner.startup import signing_warning

LINGER_SECONDS = 0.5
"""How long a stopping server lets readers finish, in seconds."""
LATE_SECONDS = 10.0
"""How long after the grace period a blocked process may still run, in seconds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process does until it is stopped."""

    settings: Settings
    apps: Sequence[App]
    ready: Callable[[Backburner, AsyncExitStack], None]
    """Called once everything runs; its stack is closed before the platform."""
    listener: socket.socket | None = None
    """Socket of the API, if it is served."""
    works: bool = True
    probed: socket.socket | None = None
    """Socket of a worker's health checks and metrics, if they are served."""
    address: str = ""
    """The URL of the listener."""
    required: Sequence[str] = ()
    """Applications that are required to start."""
    is_keyed: bool = False
    """Whether callers need an API key."""
    shows_traces: bool = False
    """Whether stack traces of failed attempts follow their log lines on stderr."""


def run(plan: Plan) -> Exit:
    """Run a plan; the exit code says whether all running jobs could finish."""
    settings = plan.settings
    is_pretty = settings.log_format == "pretty" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    telemetry.configure(level=settings.log_level, pretty=is_pretty)
    if plan.shows_traces and settings.log_level != "error":
        telemetry.show_traces()
    for name in ("asyncio", "uvicorn"):
        _tame(logging.getLogger(name))
    if plan.listener is not None:
        # Imported here: within the event loop it would block it for a second.
        from backburner.http import server  # noqa: F401
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        finished = runner.run(_run(plan))
        if not finished:
            # A handler that ignores its cancellation must not keep the process alive.
            sys.stderr.flush()
            os._exit(Exit.JOB_FAILED)
    return Exit.OK


async def _run(plan: Plan) -> bool:
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(closing(_Stop(plan.settings.grace_seconds)))
        _tell(plan, "starting")
        try:
            backburner = await _open(plan, stack)
            # Built before jobs start, because it blocks the event loop for a moment.
            server = await _server(plan, backburner, stack)
            if plan.works:
                with needing_the_store():
                    await backburner.start_worker()
        except BackburnerError as error:
            _tell(plan, "failed", code=error.code)
            raise
        serves = plan.listener is not None
        warning = signing_warning(
            plan.settings, plan.apps, serves=serves, is_keyed=plan.is_keyed
        )
        if warning is not None:
            log.warning(warning)
        if server is None:
            probes = _probe(plan, backburner, stack)
            spare_collector()
            plan.ready(backburner, stack)
            await stop.asked.wait()
            if probes is not None:
                probes.is_stopping = True
            return await _stop_worker(plan, backburner)
        return await _serve(plan, server, backburner, stop, stack)


def _probe(plan: Plan, backburner: Backburner, stack: AsyncExitStack) -> Any:
    """Start a thread that answers health checks, if the plan has a socket for it."""
    if plan.probed is None:
        return None
    from backburner.http.probes import Probes, ProbeServer

    settings = plan.settings
    probes = Probes(
        backburner.engine.store.ping,
        blocked_seconds=settings.blocked_seconds,
        unavailable=tuple(backburner.unavailable),
    )
    server = ProbeServer(probes, settings, version("backburner"), plan.probed)
    server.start()
    stack.callback(server.stop)
    return probes


async def _server(
    plan: Plan, backburner: Backburner, stack: AsyncExitStack
) -> "_Server | None":
    """Return the server of the API, not started yet; `None` without a socket for it."""
    if plan.listener is None:
        return None
    from backburner.cli.doctor import examine
    from backburner.http import server as http
    from backburner.http.auth import as_developer, by_key
    from backburner.http.protocol import config

    with needing_the_store():
        app_routes = await _routes(plan, backburner, stack)
    app = http.build(
        backburner.engine,
        plan.settings,
        keys=backburner.keys,
        version=version("backburner"),
        authenticate=by_key(backburner.keys) if plan.is_keyed else as_developer,
        app_routes=app_routes,
        unavailable=tuple(backburner.unavailable),
        examine=partial(examine, plan.settings, lambda: plan.apps),
    )
    return _Server(config(app, plan.settings), plan.listener, partial(http.stop, app))


async def _serve(
    plan: Plan,
    server: "_Server",
    backburner: Backburner,
    stop: "_Stop",
    stack: AsyncExitStack,
) -> bool:
    serving = asyncio.create_task(server.serve([server.listener]))
    for event in (server.ready, stop.asked):
        serving.add_done_callback(_setter(event))
    await server.ready.wait()
    spare_collector()
    plan.ready(backburner, stack)
    await stop.asked.wait()
    server.stop_listening()
    finished = await _stop_worker(plan, backburner)
    # Readers that wait for running jobs get their result before they are disconnected.
    asyncio.get_running_loop().call_later(LINGER_SECONDS, server.end_streams)
    server.should_exit = True
    await serving
    return finished


async def _stop_worker(plan: Plan, backburner: Backburner) -> bool:
    _tell(plan, "stopping")
    if count := backburner.running:
        jobs = "a running job" if count == 1 else f"{count} running jobs"
        printing.say(
            f"Waiting up to {plan.settings.grace_seconds:g} s for {jobs} to finish; "
            "a second signal (Ctrl-C) stops at once"
        )
    finished = await backburner.stop_worker()
    _tell(plan, "stopped")
    return finished


def _tell(plan: Plan, phase: WorkerPhase, **more: Any) -> None:
    """Log the messages of applications about the start and stop of a worker."""
    if not plan.works:
        return
    for app in plan.apps:
        if phase in app.worker_log:
            level = log.error if phase == "failed" else log.info
            level(app.worker_log[phase], **more)


async def _routes(
    plan: Plan, backburner: Backburner, stack: AsyncExitStack
) -> list[Any]:
    """Return the routes of the applications that have any."""
    from backburner.http import static

    routes: list[Any] = []
    for app in plan.apps:
        if app.name in backburner.unavailable:
            continue
        if app.serves is not None:
            routes += await stack.enter_async_context(app.serves(backburner))
        if app.pages is not None:
            origins = await _upload_origins(backburner)
            routes += static.routes(app.name, app.pages, origins)
    return routes


async def _upload_origins(backburner: Backburner) -> Sequence[str]:
    """Return the origins that pages may upload to besides this server."""
    try:
        return await backburner.upload_origins()
    except Exception as error:  # noqa: BLE001 - pages work without them
        log.warning("upload origin unknown", error_type=type(error).__name__)
        return ()


def spare_collector() -> None:
    """
    Run the cyclic garbage collector rarely, and not on objects that stay.

    Jobs create no reference cycles. With the defaults, the collector takes a quarter
    of a worker's CPU time, and its pauses determine a server's p99.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _setter(event: asyncio.Event) -> Callable[[object], None]:
    return lambda _: event.set()


async def _open(plan: Plan, stack: AsyncExitStack) -> Backburner:
    backburner = Backburner(
        plan.settings,
        apps=plan.apps,
        address=plan.address,
        faults=faults.parse(fault()),
    )
    with needing_the_store():
        await stack.enter_async_context(backburner)
        await backburner.engine.store.ping()
        for name in plan.required:
            if name in backburner.unavailable:
                raise ConfigurationError(
                    f"application {name!r} cannot be served: "
                    f"{backburner.unavailable[name]}; correct it and run `backburner "
                    f"migrate --app {name}`"
                )
        if plan.is_keyed and not await backburner.keys.has_good():
            raise ConfigurationError(
                "the store has no API keys: create one with `backburner keys create`, "
                "or use --dev to serve only this machine"
            )
    return backburner


class _Stop:
    """
    Handles signals: the first one stops the process, the second ends it at once.

    A handler of `signal` runs in the main thread, which a job may block for ever, and
    which may not notice a signal that another thread received. So a separate thread
    reads the signals from the socket to which the interpreter writes their numbers.
    """

    def __init__(self, grace: float) -> None:
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._patience = grace + LATE_SECONDS
        self._heard = 0
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._loops_own = signal.set_wakeup_fd(self._mouth.fileno())
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)
        threading.Thread(
            target=self._listen, name="backburner-signals", daemon=True
        ).start()

    def close(self) -> None:
        """Restore the default handlers: the next signal ends the process."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(self._loops_own)

    def _listen(self) -> None:
        while True:
            try:
                numbers = self._ear.recv(64)
            except TimeoutError:
                os._exit(Exit.JOB_FAILED)
            for number in numbers:
                if number in STOP_SIGNALS:
                    self._hear(number)
            with suppress(OSError):  # the loop may have handlers for other signals
                os.write(self._loops_own, numbers)

    def _hear(self, number: int) -> None:
        self._heard += 1
        if self._heard > 1:
            os._exit(Exit.INTERRUPTED)
        self._ear.settimeout(self._patience)
        with suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._ask, number)

    def _ask(self, number: int) -> None:
        log.info("stopping", signal=signal.Signals(number).name)
        self.asked.set()


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        end_streams: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.listener = listener
        self.end_streams = end_streams
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Report when the server accepts connections."""
        await super().startup(sockets)
        self.ready.set()

    def stop_listening(self) -> None:
        """Accept no new connections; open ones continue for now."""
        for listener in self.servers:
            listener.close()


class _Retold(logging.Handler):
    """Logs warnings of libraries without values, which may be data of users."""

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        log.warning(str(record.msg).strip(), error_type=kind.__name__ if kind else None)


def _tame(logger: Any) -> None:
    logger.handlers = [_Retold(logging.WARNING)]
    logger.propagate = False
