"""`doctor`: looks at this machine and the store, and says what to do."""

import asyncio
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.text import Text

from backburner.cli import printing
from backburner.cli.asking import JsonOption
from backburner.cli.exits import Exit
from backburner.cli.serving import StoreOption
from backburner.client import Client, ClientError
from backburner.clock import SystemClock
from backburner.domain.errors import BackburnerError
from backburner.ports.faults import NoFaults
from backburner.settings import Settings, read
from backburner.wiring import find_store

OLDEST_PYTHON = (3, 11)
WAL_RESET_FIXED = (3, 51, 3)
MANY_WAL_BYTES = 256 * 1024 * 1024
FEW_BYTES = 1024**3
TOO_FEW_BYTES = 100 * 1024**2
FULL = 2
"""What `PRAGMA synchronous` answers for FULL."""


class Status(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - not a password
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One thing looked at."""

    status: Status
    name: str
    message: str
    fix: str = ""


COLOURS = {Status.PASS: "green", Status.WARN: "yellow", Status.FAIL: "red"}


def doctor(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check this machine and the store; exit 9 if something must be mended."""
    findings = []
    for finding in _examine(store):
        findings.append(finding)
        if as_json:
            printing.write_json(finding._asdict())
        else:
            _show(finding)
    if any(finding.status is Status.FAIL for finding in findings):
        raise typer.Exit(Exit.PROBLEMS)


def _show(finding: Finding) -> None:
    line = Text(finding.status, style=COLOURS[finding.status])
    line.append(printing.clean(f"  {finding.name}: {finding.message}"), style="default")
    printing.data.print(line)
    if finding.fix:
        printing.data.print(Text(printing.clean(f"      fix: {finding.fix}")))


def _examine(url: str | None) -> Iterator[Finding]:
    yield _python()
    try:
        settings = read(store=url)
        store = find_store(settings.store, SystemClock(), NoFaults())
    except BackburnerError as error:
        yield Finding(Status.FAIL, "settings", str(error), "correct the setting")
        return
    yield Finding(Status.PASS, "settings", "understood")
    yield _library()
    yield from _store(store, store.database.path)
    if "url" in settings.model_fields_set:
        yield _server(settings)


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return Finding(Status.FAIL, "python", version, "use Python 3.11 or newer")
    return Finding(Status.PASS, "python", version)


def _library() -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= WAL_RESET_FIXED:
        return Finding(Status.PASS, "sqlite", version)
    return Finding(
        Status.WARN,
        "sqlite",
        f"{version} has the WAL-reset fault that 3.51.3 mends; Backburner's processes "
        "are safe from it, for they write and checkpoint under one lock",
        "let no other program write to the file, or upgrade SQLite",
    )


def _store(store: Any, path: Path) -> Iterator[Finding]:
    yield from _folder(path.parent)
    if not path.exists():
        yield Finding(Status.PASS, "schema", f"{path} is made at the first start")
        return
    try:
        version = store.version()
        yield _schema(version)
        if version is None:
            return
        yield from _pragmas(store)
        yield _wal(path.with_name(path.name + "-wal"))
        asyncio.run(_write(store))
    except BackburnerError as error:
        fix = "see the line above, or look at the file's owner, rights and disk"
        yield Finding(Status.FAIL, "write", str(error), fix)
    else:
        yield Finding(Status.PASS, "write", "a transaction was committed")


def _folder(folder: Path) -> Iterator[Finding]:
    folder = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}"
        fix = "name another file in BACKBURNER_STORE, or grant the right to write"
        yield Finding(Status.FAIL, "folder", message, fix)
        return
    message = f"{free / 1024**3:.1f} GiB free"
    if free < FEW_BYTES:
        status = Status.FAIL if free < TOO_FEW_BYTES else Status.WARN
        yield Finding(status, "disk", message, "make room, or keep jobs for fewer days")
    else:
        yield Finding(Status.PASS, "disk", message)


def _schema(version: str | None) -> Finding:
    from backburner.stores.migrations import HEAD

    if version in {None, HEAD}:
        return Finding(Status.PASS, "schema", version or "none yet")
    message = f"{version}, this release needs {HEAD}"
    return Finding(Status.FAIL, "schema", message, "run `backburner migrate`")


def _pragmas(store: Any) -> Iterator[Finding]:
    """Read back what every connection of ours sets, from one of them."""
    with store.database.connect() as connection:
        raw = connection.connection.driver_connection
        (mode,) = raw.execute("PRAGMA journal_mode").fetchone()
        (level,) = raw.execute("PRAGMA synchronous").fetchone()
    fix = "put the file on a local disk: network folders cannot hold it"
    status = Status.PASS if mode == "wal" else Status.FAIL
    yield Finding(status, "journal", mode, "" if mode == "wal" else fix)
    status = Status.PASS if level >= FULL else Status.FAIL
    message = "FULL" if level >= FULL else f"{level}, less than FULL"
    fix = "" if level >= FULL else "this SQLite forbids it: use another build"
    yield Finding(status, "synchronous", message, fix)


def _wal(path: Path) -> Finding:
    size = path.stat().st_size if path.exists() else 0
    message = f"{size / 1024**2:.1f} MiB"
    if size > MANY_WAL_BYTES:
        fix = "a reader stays open for long: find it, or restart the processes"
        return Finding(Status.WARN, "wal", message, fix)
    return Finding(Status.PASS, "wal", message)


async def _write(store: Any) -> None:
    await store.open()
    try:
        await store.ping()
    finally:
        await store.close()


def _server(settings: Settings) -> Finding:
    try:
        with Client(settings.url) as client:
            client.ready()
    except ClientError as error:
        fix = "start it, or correct BACKBURNER_URL"
        return Finding(Status.FAIL, "server", str(error), fix)
    return Finding(Status.PASS, "server", f"{settings.url} is ready")
