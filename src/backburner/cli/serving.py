"""`serve` and `worker`: the processes that stay."""

import importlib
import ipaddress
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from backburner.adapters import find_apps
from backburner.app import App
from backburner.cli import printing
from backburner.domain.errors import ConfigurationError
from backburner.settings import Settings, read, variable
from backburner.wiring import Backburner

StoreOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the jobs are: sqlite:///file."),
]
AppOption = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE:NAME", help="An App to load; may be repeated."),
]
SlotsOption = Annotated[
    int | None, typer.Option(help="How many jobs to run at once.", metavar="N")
]
LevelOption = Annotated[
    str | None,
    typer.Option(help="Least of the log lines: debug, info, warning, error."),
]
DevOption = Annotated[
    bool, typer.Option("--dev", help="Development: no keys, and the demo capabilities.")
]

DEV_PEPPER = "development only, a secret to nobody"


def serve(
    service: Annotated[
        str | None,
        typer.Argument(help="One service only, such as tasks or ai; default: all."),
    ] = None,
    *,
    host: Annotated[str | None, typer.Option(help="The address to serve on.")] = None,
    port: Annotated[
        int | None, typer.Option(help="The port; 0 takes a free one.")
    ] = None,
    store: StoreOption = None,
    dev: DevOption = False,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Serve the API only.")
    ] = False,
    app: AppOption = None,
    slots: SlotsOption = None,
    log_level: LevelOption = None,
) -> None:
    """Serve the API and run jobs, in one process; one service only runs none."""
    settings = read(host=host, port=port, store=store, slots=slots, log_level=log_level)
    if dev:
        settings = in_development(settings)
    elif not settings.key_pepper.get_secret_value():
        raise ConfigurationError(
            "BACKBURNER_KEY_PEPPER is not set: set it and make a key with `backburner "
            "keys create`, or give --dev to serve this machine only"
        )
    from backburner.cli import running

    apps = load(app or (), dev=dev)
    if service is not None:
        apps, no_worker = alone(apps, service, settings), True
    with bind(settings, is_keyed=not dev) as listener:
        settings = at_home(settings, address(listener))

        def ready(_house: Backburner, _stack: AsyncExitStack) -> None:
            printing.say(f"Backburner is ready at {address(listener)}")

        plan = running.Plan(
            settings,
            apps,
            ready,
            listener=listener,
            works=not no_worker,
            is_keyed=not dev,
        )
        raise typer.Exit(running.run(plan))


def worker(
    *,
    store: StoreOption = None,
    app: AppOption = None,
    dev: DevOption = False,
    queues: Annotated[
        str | None,
        typer.Option(help="The queues to take from, by comma.", metavar="A,B"),
    ] = None,
    slots: SlotsOption = None,
    log_level: LevelOption = None,
) -> None:
    """Run jobs, beside other workers and servers on the same store."""
    from backburner.cli import running

    settings = read(store=store, queues=queues, slots=slots, log_level=log_level)
    if dev:
        settings = in_development(settings)
    apps = load(app or (), dev=dev)

    def ready(house: Backburner, _stack: AsyncExitStack) -> None:
        names = ", ".join(settings.queues or house.registry.queues())
        printing.say(f"Backburner works on {names}")

    raise typer.Exit(running.run(running.Plan(settings, apps, ready)))


def alone(apps: Sequence[App], service: str, settings: Settings) -> list[App]:
    """Return the apps of a process with one service's routes; check its settings."""
    services = {found.name for found in apps if found.serves is not None}
    if service not in services:
        known = ", ".join(sorted(services)) or "none"
        raise ConfigurationError(f"no service is called {service!r}; there is: {known}")
    for name in ("webhook_secret", *_NEEDED.get(service, ())):
        value = getattr(settings, name)
        if not (value.get_secret_value() if isinstance(value, SecretStr) else value):
            raise ConfigurationError(
                f"{variable(name)} is not set: `backburner serve {service}` needs it"
            )
    return [
        found if found.name == service else replace(found, serves=None)
        for found in apps
    ]


_NEEDED = {"tasks": ("tasks_service_base_url", "ai_service_base_url")}


def at_home(settings: Settings, address: str) -> Settings:
    """Have services that nobody says where they are be where this process serves."""
    missing = {
        name: address
        for name in ("tasks_service_base_url", "ai_service_base_url")
        if not getattr(settings, name)
    }
    return settings.model_copy(update=missing)


def in_development(settings: Settings) -> Settings:
    """Let keys be made and webhooks signed, for trying, by what is no secret."""
    missing = {
        name: SecretStr(DEV_PEPPER)
        for name in ("key_pepper", "webhook_secret")
        if not getattr(settings, name).get_secret_value()
    }
    return settings.model_copy(update=missing)


def bind(settings: Settings, *, is_keyed: bool = False) -> socket.socket:
    """Take the address to serve on; without keys it must be this machine's own."""
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigurationError(f"BACKBURNER_HOST={host!r} has no address") from None
    family, _, _, _, resolved = found[0]
    if not is_keyed and not ipaddress.ip_address(resolved[0]).is_loopback:
        raise ConfigurationError(
            f"BACKBURNER_HOST={host!r} is not this machine's own: "
            "without API keys only 127.0.0.1 and ::1 are served"
        )
    try:
        return socket.create_server((str(resolved[0]), port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"BACKBURNER_PORT={port} cannot be used: {error.strerror}; "
            "try another, or --port 0"
        ) from None


def address(listener: socket.socket) -> str:
    """Write a listening socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def load(names: Sequence[str], *, dev: bool) -> list[App]:
    """Return the apps of this process: named, installed and, in development, ours."""
    # As `python -m` does, so that a module in the current folder is found.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds strings
    apps = [_find(name) for name in names]
    try:
        apps += find_apps()
    except Exception as error:
        raise ConfigurationError(
            f"an installed app does not load: {_told(error)}"
        ) from error
    if dev:
        from backburner import demo

        apps.append(demo.app)
    return apps


def _find(name: str) -> App:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigurationError(f"--app {name}: write it as module:app")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigurationError(f"--app {name}: {_told(error)}") from error
    if not isinstance(found, App):
        raise ConfigurationError(
            f"--app {name}: that is a {type(found).__name__}, not a backburner.App"
        )
    return found


def _told(error: Exception) -> str:
    """Say in one line what a module raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_theirs = not last.filename.startswith(("<frozen", __file__))
    where = f" ({last.filename}, line {last.lineno})" if is_theirs else ""
    return f"{type(error).__name__}: {error}{where}"
