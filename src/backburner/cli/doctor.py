"""`doctor`: looks at this machine, the store and the broker; says what to do."""

import asyncio
import platform
import sys
from collections.abc import AsyncIterator, Iterator

import typer
from rich.text import Text

from backburner.adapters import find_blobs, find_store, open_broker
from backburner.cli import printing
from backburner.cli.asking import JsonOption, connect
from backburner.cli.exits import Exit
from backburner.cli.serving import StoreOption
from backburner.client import ClientError
from backburner.clock import SystemClock, SystemDice
from backburner.domain.errors import BackburnerError
from backburner.ports.faults import NoFaults
from backburner.ports.finding import Finding, Status
from backburner.settings import Settings, read

OLDEST_PYTHON = (3, 11)
COLOURS = {Status.PASS: "green", Status.WARN: "yellow", Status.FAIL: "red"}


def doctor(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check machine, store and broker; exit 9 if something must be mended."""
    if asyncio.run(_report(store, as_json=as_json)):
        raise typer.Exit(Exit.PROBLEMS)


async def _report(url: str | None, *, as_json: bool) -> bool:
    """Print what is found as it is found; return whether anything failed."""
    has_failed = False
    async for finding in _examine(url):
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


async def _examine(url: str | None) -> AsyncIterator[Finding]:
    yield _python()
    clock = SystemClock()
    try:
        settings = read(store=url)
        store = find_store(settings.store, clock, NoFaults())
    except BackburnerError as error:
        yield Finding(Status.FAIL, "settings", str(error), "correct the setting")
        return
    yield Finding(Status.PASS, "settings", "understood")
    async for finding in store.examine(clock):
        yield finding
    for finding in _blobs(settings):
        yield finding
    async for finding in _broker(settings.transport):
        yield finding
    if "url" in settings.model_fields_set:
        yield await asyncio.to_thread(_server, settings)


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
            "BACKBURNER_BLOBS is not set: large contents go to a folder of each "
            "process's own current folder",
            "set it to one folder that all processes share",
        )


async def _broker(url: str) -> AsyncIterator[Finding]:
    try:
        async with open_broker(url) as broker:
            if broker is None:
                told = "none: the database tells workers of work"
                yield Finding(Status.PASS, "broker", told)
                return
            async for finding in broker.examine():
                yield finding
    except BackburnerError as error:
        fix = "start it, or correct BACKBURNER_TRANSPORT"
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
        fix = "start it, or correct BACKBURNER_URL"
        return Finding(Status.FAIL, "server", str(error), fix)
    return Finding(Status.PASS, "server", f"{settings.url} is ready")
