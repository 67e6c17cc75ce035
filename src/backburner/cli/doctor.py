"""`doctor`: checks this machine, the settings, the store and the broker."""

import asyncio
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.text import Text

from backburner import schemas
from backburner.adapters import find_blobs, find_providers, find_store, open_broker
from backburner.app import App, Setup
from backburner.cli import printing
from backburner.cli.applications import (
    AppOption,
    find_present,
    load,
    served_by,
    serving_only,
)
from backburner.cli.asking import JsonOption, connect
from backburner.cli.exits import Exit
from backburner.cli.serving import StoreOption
from backburner.client import ClientError
from backburner.clock import SystemClock, SystemDice
from backburner.domain.errors import BackburnerError
from backburner.engine.models.asking import Providers
from backburner.environment import shown
from backburner.ports.clock import Clock
from backburner.ports.faults import NoFaults
from backburner.ports.finding import Finding, Status
from backburner.settings import Settings, read
from backburner.startup import problems, read_apps, signing_warning

OLDEST_PYTHON = (3, 11)
COLOURS = {Status.PASS: "green", Status.WARN: "yellow", Status.FAIL: "red"}


def doctor(
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVICE", help="Services, as for `serve`."),
    ] = None,
    *,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check machine, settings, store and broker; exit with 9 if a check fails."""
    found = _examine(services or (), app=app, store=store)
    if asyncio.run(_report(found, as_json=as_json)):
        raise typer.Exit(Exit.PROBLEMS)


async def _report(found: AsyncIterator[Finding], *, as_json: bool) -> bool:
    """Print each finding when it is known; return whether anything failed."""
    has_failed = False
    async for finding in found:
        has_failed = has_failed or finding.status is Status.FAIL
        if as_json:
            printing.write_json(finding._asdict())
        else:
            _show(finding)
    return has_failed


def _show(finding: Finding) -> None:
    line = Text(finding.status, style=COLOURS[finding.status])
    line.append(printing.clean(f"  {finding.name}: {finding.message}"), style="default")
    printing.data.print(line)
    if finding.fix:
        printing.data.print(Text(printing.clean(f"      fix: {finding.fix}")))


async def _examine(
    services: Sequence[str], *, app: Sequence[str] | None, store: str | None
) -> AsyncIterator[Finding]:
    yield _python()
    try:
        settings = read(store=store, apps=app)
        find_store(settings.store, SystemClock(), NoFaults())
    except BackburnerError as error:
        yield Finding(Status.FAIL, "settings", str(error), "correct the setting")
        return
    yield Finding(Status.PASS, "settings", "all are valid")
    async for finding in examine(settings, partial(_apps, settings, services)):
        yield finding
    if "url" in settings.model_fields_set:
        yield await asyncio.to_thread(_server, settings)


def _apps(settings: Settings, services: Sequence[str]) -> Sequence[App]:
    apps = load((*settings.apps, *services))
    return serving_only(services, apps) if services else apps


async def examine(
    settings: Settings, find_apps: Callable[[], Sequence[App]]
) -> AsyncIterator[Finding]:
    """Check what a process with these settings needs; also used by the server."""
    clock = SystemClock()
    async for finding in _start(settings, find_apps):
        yield finding
    async for finding in find_store(settings.store, clock, NoFaults()).examine(clock):
        yield finding
    async for finding in _schemas(settings, find_apps, clock):
        yield finding
    for finding in _blobs(settings):
        yield finding
    async for finding in _broker(settings.transport):
        yield finding


async def _start(
    settings: Settings, find_apps: Callable[[], Sequence[App]]
) -> AsyncIterator[Finding]:
    """Report why `serve` and `worker` would not start with these settings."""
    is_keyed = bool(settings.key_pepper.get_secret_value())
    try:
        clock = SystemClock()
        await Providers((), clock, by_purpose=find_providers(settings, clock)).close()
        apps = find_apps()
        own = read_apps(apps)
    except BackburnerError as error:
        yield Finding(Status.FAIL, "start", str(error), "correct the setting")
        return
    for app in apps:
        if app.settings is not None:
            told = ", ".join(f"{k}={v}" for k, v in shown(own.of(app.settings)).items())
            yield Finding(Status.PASS, f"settings of {app.name}", told)
    found = problems(settings, apps, Setup(served_by(apps), is_keyed=is_keyed), own)
    for problem in found:
        fix = "set it, or do not run the application that needs it"
        yield Finding(Status.FAIL, "start", problem, fix)
    warning = signing_warning(settings, apps, serves=False, is_keyed=is_keyed)
    if warning is not None:
        fix = "set BACKBURNER_LINK_SECRET to the output of `openssl rand -hex 32`"
        yield Finding(Status.WARN, "signing", warning, fix)
    if not is_keyed:
        told = "BACKBURNER_KEY_PEPPER is not set: `serve` starts only with --dev"
        yield Finding(Status.WARN, "start", told, "set it, and create an API key")
    elif not found:
        names = ", ".join(app.name for app in apps) or "none"
        told = f"all required settings are set; applications: {names}"
        yield Finding(Status.PASS, "start", told)


async def _schemas(
    settings: Settings, find_apps: Callable[[], Sequence[App]], clock: Clock
) -> AsyncIterator[Finding]:
    """Report applications whose tables do not have the needed schema."""
    store = find_store(settings.store, clock, NoFaults())
    try:
        if await store.version() is None:
            return
        present = await find_present(store, find_apps())
        for app in present.apps:
            if app.migrations:
                outcome = await schemas.compare(store, app)
                fix = f"run `backburner migrate --app {app.name}`"
                yield Finding(
                    Status.FAIL if outcome.problem else Status.PASS,
                    f"application {app.name}",
                    outcome.problem or f"schema {outcome.after}",
                    fix if outcome.problem else "",
                )
                for found in () if outcome.problem else await _app(store, app):
                    yield found
    except (BackburnerError, OSError):
        return  # reported above
    finally:
        await store.close()
    for name, why in present.missing.items():
        told = f"its tables are in the store, but {why}"
        fix = "install it, or drop its tables"
        yield Finding(Status.WARN, f"application {name}", told, fix)


async def _app(store: Any, app: App) -> Sequence[Finding]:
    """Return what an application reports about its own tables."""
    if app.examine is None:
        return ()
    side, examine = store.side(), app.examine
    try:
        found: Sequence[Finding] = await side.read(lambda c: [*examine(c)])
    finally:
        await side.close()
    return found


def _blobs(settings: Settings) -> Iterator[Finding]:
    try:
        blobs = find_blobs(settings, SystemDice(), NoFaults())
    except BackburnerError as error:
        fix = "correct BACKBURNER_BLOBS"
        yield Finding(Status.FAIL, "blobs", str(error), fix)
        return
    yield from blobs.examine()
    if not settings.blobs and not settings.store.startswith("sqlite:"):
        yield Finding(
            Status.WARN,
            "blob folder",
            "BACKBURNER_BLOBS is not set: each process stores large contents in its "
            "own current folder",
            "set it to one folder that all processes share",
        )


async def _broker(url: str) -> AsyncIterator[Finding]:
    try:
        async with open_broker(url) as broker:
            if broker is None:
                told = "none: the database notifies workers"
                yield Finding(Status.PASS, "broker", told)
                return
            async for finding in broker.examine():
                yield finding
    except BackburnerError as error:
        fix = "start the broker, or correct BACKBURNER_TRANSPORT"
        yield Finding(Status.FAIL, "broker", str(error), fix)


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return Finding(Status.FAIL, "python", version, "use Python 3.11 or newer")
    return Finding(Status.PASS, "python", version)


def _server(settings: Settings) -> Finding:
    try:
        with connect(settings.url) as client:
            client.ready()
    except ClientError as error:
        fix = "start the server, or correct BACKBURNER_URL"
        return Finding(Status.FAIL, "server", str(error), fix)
    return Finding(Status.PASS, "server", f"{settings.url} is ready")
