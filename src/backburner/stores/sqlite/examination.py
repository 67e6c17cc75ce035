"""Checks of a SQLite file for `doctor`: its folder, its disk and its guarantees."""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from backburner.domain.errors import BackburnerError
from backburner.ports.finding import Finding, Status, room
from backburner.ports.store import Store
from backburner.stores import schema
from backburner.stores.sqlite.database import WAL_LIMIT_BYTES, Database, driver

WAL_RESET_FIXED = (3, 51, 3)
MANY_WAL_BYTES = 2 * WAL_LIMIT_BYTES
MANY_FREE_BYTES = 64 * 1024 * 1024
MANY_FREE_SHARE = 0.5
FULL = 2
"""The value of `PRAGMA synchronous` for FULL."""


async def examine(store: Store, database: Database) -> AsyncIterator[Finding]:
    """Check the library, the folder and the file."""
    path = database.path
    assert path is not None  # noqa: S101 - a store from a URL has a file
    yield _library()
    yield await asyncio.to_thread(_folder, path.parent)
    if not path.exists():
        yield schema.judged(None)
        return
    try:
        version = await store.version()
        yield schema.judged(version)
        if version is None:
            return
        for finding in await asyncio.to_thread(lambda: [*_pragmas(database)]):
            yield finding
        yield _wal(path.with_name(path.name + "-wal"))
        await store.open()
        try:
            await store.ping()
        finally:
            await store.close()
    except BackburnerError as error:
        fix = "see the line above, or look at the file's owner, rights and disk"
        yield Finding(Status.FAIL, "write", str(error), fix)
    else:
        yield Finding(Status.PASS, "write", "a transaction was committed")


def _library() -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= WAL_RESET_FIXED:
        return Finding(Status.PASS, "sqlite", version)
    return Finding(
        Status.WARN,
        "sqlite",
        f"{version} has the WAL-reset bug that 3.51.3 fixes; Backburner's processes "
        "avoid it: they write and checkpoint under one lock",
        "let no other program write to the file, or upgrade SQLite",
    )


def _folder(folder: Path) -> Finding:
    folder = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}"
        fix = "name another file in BACKBURNER_STORE, or grant the right to write"
        return Finding(Status.FAIL, "folder", message, fix)
    return room("disk", free)


def _pragmas(database: Database) -> Iterator[Finding]:
    """Read the settings that each of our connections should have."""
    with database.connect() as connection:
        raw = driver(connection)
        (mode,) = raw.execute("PRAGMA journal_mode").fetchone()
        (level,) = raw.execute("PRAGMA synchronous").fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
        (pages,) = raw.execute("PRAGMA page_count").fetchone()
        (free,) = raw.execute("PRAGMA freelist_count").fetchone()
    fix = "put the file on a local disk: network folders cannot hold it"
    status = Status.PASS if mode == "wal" else Status.FAIL
    yield Finding(status, "journal", mode, "" if mode == "wal" else fix)
    status = Status.PASS if level >= FULL else Status.FAIL
    message = "FULL" if level >= FULL else f"{level}, less than FULL"
    fix = "" if level >= FULL else "this SQLite forbids it: use another build"
    yield Finding(status, "synchronous", message, fix)
    yield bloat(pages * size, free * size)


def bloat(size: int, free: int) -> Finding:
    """Report how much of the file is unused."""
    message = f"{free / 1024**2:.1f} of {size / 1024**2:.1f} MiB are unused"
    if free < MANY_FREE_BYTES or free < size * MANY_FREE_SHARE:
        return Finding(Status.PASS, "bloat", message)
    fix = "new jobs reuse this space; to free it, stop all processes and run VACUUM"
    return Finding(Status.WARN, "bloat", message, fix)


def _wal(path: Path) -> Finding:
    size = path.stat().st_size if path.exists() else 0
    message = f"{size / 1024**2:.1f} MiB"
    if size > MANY_WAL_BYTES:
        fix = "a reader stays open for long: find it, or restart the processes"
        return Finding(Status.WARN, "wal", message, fix)
    return Finding(Status.PASS, "wal", message)
