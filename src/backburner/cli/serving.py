"""`serve` and `worker`: the long-running processes."""

import ipaddress
import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from backburner.app import Setup
from backburner.backburner import Backburner
from backburner.cli import printing
from backburner.cli.applications import AppOption, load, served_by, serving_only
from backburner.cli.exits import Exit
from backburner.domain.errors import ConfigurationError
from backburner.settings import PREFIX, Settings, read
from backburner.startup import check

StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Database: sqlite:///file or postgresql://…. Default: sqlite:///backburner.db.",
    ),
]
SlotsOption = Annotated[
    int | None,
    typer.Option(help="Maximum number of concurrent jobs. Default: 100.", metavar="N"),
]
LevelOption = Annotated[
    str | None,
    typer.Option(
        help="Minimum log level: debug, info, warning or error. Default: info."
    ),
]
DevOption = Annotated[
    bool,
    typer.Option("--dev", help="Development mode: no API keys, mock models."),
]

LOOPBACK = ("localhost", "127.0.0.0/8", "::1")
NO_APP = (
    "backburner: no application is loaded, so this server runs none of your jobs; "
    "name one with --app MODULE:APP"
)
DEV_PEPPER = "development only, a secret to nobody"


def serve(
    services: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SERVICE",
            help="Applications whose routes are served, such as tasks or ai. "
            "Default: those of --app.",
        ),
    ] = None,
    *,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on; 0 selects a free one. Default: 8765."),
    ] = None,
    store: StoreOption = None,
    dev: DevOption = False,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="With --dev: restart when a Python file in this folder changes.",
        ),
    ] = False,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Serve only the API; run no jobs.")
    ] = False,
    app: AppOption = None,
    slots: SlotsOption = None,
    log_level: LevelOption = None,
) -> None:
    """Serve the API and run jobs in one process."""
    if reload and not dev:
        raise ConfigurationError("--reload works only in development: add --dev")
    settings = read(
        host=host, port=port, store=store, slots=slots, log_level=log_level, apps=app
    )
    if dev:
        settings = in_development(settings)
    serving = Serving(settings, tuple(services or ()), works=not no_worker, dev=dev)
    if not reload:
        raise typer.Exit(serving.run())
    from backburner.cli import reloading

    with bind(settings) as listener:
        raise typer.Exit(reloading.run(serving.run, listener))


@dataclass(frozen=True, slots=True)
class Serving:
    """The options of `serve`, which can be passed to a child process."""

    settings: Settings
    services: Sequence[str]
    works: bool
    dev: bool

    def run(self, listener: socket.socket | None = None) -> Exit:
        """Serve until a signal, on this socket or on the configured address."""
        settings, is_keyed = self.settings, not self.dev
        apps = load((*settings.apps, *self.services))
        if self.services:
            apps = serving_only(self.services, apps)
        setup = Setup(
            served_by(apps), works=self.works, is_keyed=is_keyed, is_dev=self.dev
        )
        check(settings, apps, setup)
        from backburner.cli import running

        with listener or bind(settings, is_keyed=is_keyed) as listening:
            here = address(listening)

            def ready(_backburner: Backburner, _stack: AsyncExitStack) -> None:
                if not apps:
                    printing.say(NO_APP)
                printing.say(f"Backburner is ready at {here}")
                printing.say(f"The dashboard is at {here}/ui/")

            plan = running.Plan(
                settings,
                apps,
                ready,
                listener=listening,
                address=here,
                works=self.works,
                required=self.services,
                is_keyed=is_keyed,
                shows_traces=self.dev,
            )
            return running.run(plan)


def worker(
    *,
    store: StoreOption = None,
    app: AppOption = None,
    dev: DevOption = False,
    queues: Annotated[
        str | None,
        typer.Option(
            help="Queues to take jobs from, separated by commas.", metavar="A,B"
        ),
    ] = None,
    slots: SlotsOption = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Port for /metrics, /livez and /readyz; 0 selects a free one."
        ),
    ] = None,
    metrics_host: Annotated[
        str | None,
        typer.Option(help="Address for --metrics-port. Default: 127.0.0.1."),
    ] = None,
    log_level: LevelOption = None,
) -> None:
    """Run jobs. Any number of workers can share a store."""
    settings = read(
        store=store,
        queues=queues,
        slots=slots,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        log_level=log_level,
        apps=app,
    )
    if dev:
        settings = in_development(settings)
    apps = load(settings.apps)
    check(settings, apps, Setup(is_dev=dev))
    from backburner.cli import running

    def ready(backburner: Backburner, _stack: AsyncExitStack) -> None:
        names = ", ".join(
            backburner.registry.claimed(settings.queues or backburner.registry.queues())
        )
        printing.say(f"Backburner runs jobs of these queues: {names}")
        if probed is not None:
            printing.say(f"Metrics and health are at {address(probed)}")

    with ExitStack() as stack:
        probed = None
        if settings.metrics_port is not None:
            # Loaded here: within the event loop it would block it for a second.
            from backburner.http import probes  # noqa: F401

            host, port = settings.metrics_host, settings.metrics_port
            probed = stack.enter_context(_listen(host, port, "BACKBURNER_METRICS_"))
        plan = running.Plan(settings, apps, ready, probed=probed, shows_traces=dev)
        raise typer.Exit(running.run(plan))


def in_development(settings: Settings) -> Settings:
    """
    Use publicly known secrets and the mock model, unless others are set.

    Webhooks may be sent to this machine, where a receiver is developed.
    """
    missing: dict[str, Any] = {
        name: SecretStr(DEV_PEPPER)
        for name in ("key_pepper", "webhook_secret")
        if not getattr(settings, name).get_secret_value()
    }
    missing["webhook_allow"] = (*settings.webhook_allow, *LOOPBACK)
    if not settings.ai:
        missing["ai"] = ("mock",)
    return settings.model_copy(update=missing)


def bind(settings: Settings, *, is_keyed: bool = False) -> socket.socket:
    """Listen on the configured address; without API keys only on loopback."""
    return _listen(settings.host, settings.port, PREFIX, is_loopback=not is_keyed)


def _listen(
    host: str, port: int, prefix: str, *, is_loopback: bool = False
) -> socket.socket:
    """Listen on the address given by the settings `prefix` HOST and PORT."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigurationError(f"{prefix}HOST={host!r} cannot be resolved") from None
    family, _, _, _, resolved = found[0]
    if is_loopback and not ipaddress.ip_address(resolved[0]).is_loopback:
        raise ConfigurationError(
            f"{prefix}HOST={host!r} is not a loopback address: without API keys, use "
            "127.0.0.1 or ::1"
        )
    try:
        return socket.create_server((str(resolved[0]), port), family=family)
    except OSError as error:
        option = prefix.removeprefix(PREFIX).lower().replace("_", "-")
        raise ConfigurationError(
            f"{prefix}PORT={port} cannot be used: {os.strerror(error.errno or 0)}; "
            f"choose another port, or --{option}port 0 for a free one"
        ) from None


def address(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
