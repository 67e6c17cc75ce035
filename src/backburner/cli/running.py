"""
A house in a process of its own: started, told by a signal to stop, left in order.

Loaded by the commands that need it only, for it brings the server and the database.
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
from importlib.metadata import version
from typing import Any

import uvicorn
import uvloop

from backburner.app import App
from backburner.cli import faults
from backburner.cli.exits import Exit
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.engine import telemetry
from backburner.ports.log import log
from backburner.settings import Settings, fault
from backburner.wiring import Backburner

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
LINGER_SECONDS = 0.5
"""How long a server whose jobs are done lets its readers read on."""
CLOSE_SECONDS = 2
"""How long a connection may then take to end."""
KEPT_SECONDS = 75
"""For how long an idle connection is kept: longer than clients' pools keep theirs."""
LATE_SECONDS = 10.0
"""How long after the grace a process may still be there, blocked as it may be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process is to do until it is told to stop."""

    settings: Settings
    apps: Sequence[App]
    ready: Callable[[Backburner, AsyncExitStack], None]
    """Told once everything runs; what it pushes is undone before the house closes."""
    listener: socket.socket | None = None
    """Where to serve the API, if at all."""
    works: bool = True
    is_keyed: bool = False
    """Whether callers must show an API key."""


def run(plan: Plan) -> Exit:
    """Carry out a plan; say whether all jobs in flight could finish."""
    settings = plan.settings
    is_pretty = settings.log_format == "pretty" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    telemetry.configure(level=settings.log_level, pretty=is_pretty)
    for name in ("asyncio", "uvicorn"):
        _tame(logging.getLogger(name))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        finished = runner.run(_run(plan))
        if not finished:
            # A handler that ignores its interruption must not hold the process.
            sys.stderr.flush()
            os._exit(Exit.JOB_FAILED)
    return Exit.OK


async def _run(plan: Plan) -> bool:
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(closing(_Stop(plan.settings.grace_seconds)))
        house = await _open(plan, stack)
        if plan.works:
            await house.start_worker()
        if plan.listener is None:
            spare_collector()
            plan.ready(house, stack)
            await stop.asked.wait()
            return await house.stop_worker()
        return await _serve(plan, plan.listener, house, stop, stack)


async def _serve(
    plan: Plan,
    listener: socket.socket,
    house: Backburner,
    stop: "_Stop",
    stack: AsyncExitStack,
) -> bool:
    from backburner.http import server as http
    from backburner.http.auth import as_developer, by_key

    app = http.build(
        house.engine,
        plan.settings,
        keys=house.keys,
        version=version("backburner"),
        authenticate=by_key(house.keys) if plan.is_keyed else as_developer,
        rooms=await _routes(plan, house, stack),
    )
    server = _Server(_config(app, plan.settings))
    serving = asyncio.create_task(server.serve([listener]))
    for event in (server.ready, stop.asked):
        serving.add_done_callback(_setter(event))
    await server.ready.wait()
    spare_collector()
    plan.ready(house, stack)
    await stop.asked.wait()
    server.stop_listening()
    finished = await house.stop_worker()
    # Readers who waited for jobs in flight get their answer before they are sent away.
    asyncio.get_running_loop().call_later(LINGER_SECONDS, http.stop, app)
    server.should_exit = True
    await serving
    return finished


async def _routes(plan: Plan, house: Backburner, stack: AsyncExitStack) -> list[Any]:
    """Return the routes of the apps that have some, for as long as is served."""
    return [
        route
        for app in plan.apps
        if app.serves is not None
        for route in await stack.enter_async_context(app.serves(house))
    ]


def spare_collector() -> None:
    """
    Have the collector of cycles look seldom, and not at what is there to stay.

    Jobs come and go by the hundred and make no cycles: by default it spends a quarter
    of a worker's time on them, and its pauses are a server's p99.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _setter(event: asyncio.Event) -> Callable[[object], None]:
    return lambda _: event.set()


async def _open(plan: Plan, stack: AsyncExitStack) -> Backburner:
    house = Backburner(plan.settings, apps=plan.apps, faults=faults.parse(fault()))
    try:
        await stack.enter_async_context(house)
        await house.engine.store.ping()
        if plan.is_keyed and not await house.keys.has_good():
            raise ConfigurationError(
                "there are no API keys: make one with `backburner keys create`, "
                "or give --dev to serve this machine only"
            )
    except (StoreUnavailable, OSError) as error:
        raise ConfigurationError(f"BACKBURNER_STORE cannot be used: {error}") from error
    return house


class _Stop:
    """
    The wish to stop. The first signal asks; the second does not.

    A handler of `signal` runs in the main thread, which a job may block for good, and
    which need not even notice that another thread took the signal. So a thread of its
    own hears them, by the socket that the interpreter writes each one's number to.
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
        """Leave the signals to the system: from now on one is enough."""
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
            with suppress(OSError):  # the loop may have other handlers of its own
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
    """Uvicorn without its own ideas about signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to us."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say when the server takes connections."""
        await super().startup(sockets)
        self.ready.set()

    def stop_listening(self) -> None:
        """Take no new connection; those that are open go on for now."""
        for listener in self.servers:
            listener.close()


def _config(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=settings.body_limit,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEPT_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )


class _Retold(logging.Handler):
    """Passes on what a library complains of, without the values: they are a user's."""

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        log.warning(str(record.msg).strip(), error_type=kind.__name__ if kind else None)


def _tame(logger: Any) -> None:
    logger.handlers = [_Retold(logging.WARNING)]
    logger.propagate = False
