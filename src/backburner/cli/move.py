"""`move`: copies all data from one database to another and switches over."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, NamedTuple

import typer

from backburner import schemas
from backburner.adapters import blobs_url, carry_blobs, find_store
from backburner.app import App
from backburner.cli import faults, printing
from backburner.cli.applications import AppOption, find_present, load, table_names
from backburner.cli.asking import JsonOption
from backburner.cli.exits import Exit, leave, refuse
from backburner.clock import SystemClock, SystemDice
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.environment import without_passwords
from backburner.ports.faults import Faults
from backburner.settings import Settings, fault, read

TOLD_ROWS = 50_000
"""Progress is printed after this number of rows."""


def move(
    *,
    to: Annotated[
        str | None, typer.Option(metavar="URL", help="URL of the new, empty store.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="URL of the old store. Default: BACKBURNER_STORE.",
        ),
    ] = None,
    blobs_to: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also copy blobs to this blob store."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Delete data of an earlier or interrupted move from the new store.",
        ),
    ] = False,
    app: AppOption = None,
    leave_app: Annotated[
        list[str] | None,
        typer.Option(
            "--leave",
            metavar="NAME",
            help="Do not move the tables of this application. Can be repeated.",
        ),
    ] = None,
    abandon: Annotated[
        bool,
        typer.Option(
            "--abandon", help="Abandon an unfinished move; keep the old store."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Move all data to another database and compare each row. Stop workers first."""
    from backburner.stores.move.mover import CopyDiffers, MoveRefused

    if abandon == (to is not None):
        refuse("give the new store with --to, or abandon a move with --abandon")
    settings = read(store=from_, apps=app)
    options = _Options(blobs_to, replace, as_json, frozenset(leave_app or ()))
    try:
        if to is None:
            asyncio.run(_abandon(settings))
        else:
            asyncio.run(_move(settings, to, options))
    except MoveRefused as error:
        leave(Exit.CONFLICT, str(error))
    except CopyDiffers as error:
        leave(
            Exit.PROBLEMS,
            f"{error}. The move stopped before the switch-over. The old store is still "
            "in use. Fix the cause, then run `backburner move --replace`.",
        )
    except (StoreUnavailable, OSError) as error:
        raise ConfigurationError(
            f"one of the stores cannot be used: {error}"
        ) from error


async def _abandon(settings: Settings) -> None:
    from backburner.stores.move import mover

    async with AsyncExitStack() as stack:
        source = await _store(settings.store, stack, faults.parse(None))
        place = await mover.abandon(source.side())
    printing.say(
        f"the move to {place} is abandoned; rows copied there were not deleted"
    )


async def _move(settings: Settings, to: str, wanted: "_Options") -> None:
    from backburner.stores.move.mover import Moved, Mover, Options

    chosen = faults.parse(fault())
    blobs_to = wanted.blobs_to
    theirs = settings.model_copy(
        update={"store": to, "blobs": blobs_to or settings.blobs}
    )
    async with AsyncExitStack() as stack:
        source = await _store(settings.store, stack, chosen)
        target = await _store(to, stack, chosen)
        apps = await _schemas(source, load(settings.apps), wanted.left)
        options = Options(lease=settings.lease, replace=wanted.replace, apps=apps)
        mover = Mover(source, target, options, chosen, _tell)
        move_id = SystemDice().token()
        moved = await mover.run(move_id, lambda: _carry(settings, theirs, blobs_to))
        strangers = await _left_behind(source, target, stack)
        place = target.side().place
    if wanted.as_json:
        for table in moved:
            printing.write_json(table._asdict())
    elif moved:
        printing.write_rows(Moved._fields, moved)
    if strangers:
        printing.say(f"tables that were not moved: {', '.join(strangers)}")
    printing.say(f"large contents: {_where(settings, theirs, blobs_to)}")
    told = "every row was compared" if moved else "rows were compared before"
    printing.say(
        f"moved to {place}, {told}: set BACKBURNER_STORE to it for all processes"
    )


async def _schemas(
    source: Any, chosen: Sequence[App], left: Collection[str]
) -> Sequence[Any]:
    """Return the tables of applications that exist in the source."""
    from backburner.stores.move.applications import AppSchema, movable
    from backburner.stores.move.mover import MoveRefused

    present = await find_present(source, chosen)
    missing = {name: why for name, why in present.missing.items() if name not in left}
    for name, why in missing.items():
        raise MoveRefused(
            f"the store has tables of application {name!r}, but {why}: install it, or "
            f"leave its tables behind with --leave {name}"
        )
    names, found = await table_names(source), []
    for app in sorted(present.apps, key=lambda app: app.name):
        declared = () if app.tables is None else [*app.tables()]
        if app.name in left or not _has_any(names, app, declared):
            continue
        tables = movable(app.name, declared)
        found.append(AppSchema(schemas.history_of(app), tables, app.rebuild))
    return found


def _has_any(names: Collection[str], app: App, declared: Sequence[Any]) -> bool:
    """Return whether a store has tables of an application, which needs revisions."""
    if not app.migrations:
        if not declared:
            return False
        raise ConfigurationError(
            f"application {app.name!r} declares tables but no migrations to "
            f"create them in the new store; leave them behind with --leave {app.name}"
        )
    version_table = schemas.history_of(app).version_table
    return version_table in names or any(table.name in names for table in declared)


async def _left_behind(source: Any, target: Any, stack: AsyncExitStack) -> list[str]:
    """Return the source's tables that the target lacks, without index tables."""
    from backburner.stores.move import contents

    sides = [store.side() for store in (source, target)]
    for side in sides:
        stack.push_async_callback(side.close)
    there, here = [await side.read(contents.table_names) for side in sides]
    return sorted(there - here - await sides[0].read(contents.index_names))


class _Options(NamedTuple):
    blobs_to: str | None
    replace: bool
    as_json: bool
    left: frozenset[str]
    """Applications whose tables are not moved."""


async def _store(url: str, stack: AsyncExitStack, chosen: Faults) -> Any:
    store = find_store(url, SystemClock(), chosen)
    stack.push_async_callback(store.close)
    if not hasattr(store, "side"):
        refuse(f"{without_passwords(url)} cannot be moved: use SQLite or PostgreSQL")
    return store


def _tell(what: str, table: str, rows: int) -> None:
    if rows % TOLD_ROWS == 0:
        printing.say(f"{table}: {rows:,} rows {what}")


def _carry(ours: Settings, theirs: Settings, blobs_to: str | None) -> None:
    if blobs_to is not None:
        count = carry_blobs(ours, theirs)
        printing.say(f"large contents: {count:,} copied")


def _where(ours: Settings, theirs: Settings, blobs_to: str | None) -> str:
    if blobs_to is not None:
        return f"set BACKBURNER_BLOBS to {blobs_url(theirs)}"
    stay = blobs_url(ours)
    if ours.blobs:
        return f"they stay in {stay}"
    return f"they stay in {stay}: set BACKBURNER_BLOBS to it"
