"""`move`: takes a whole deployment from one database to another."""

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
from backburner.ports.faults import Faults
from backburner.settings import Settings, fault, read

TOLD_ROWS = 50_000
"""After so many rows of a table its progress is told."""


def move(
    *,
    to: Annotated[
        str | None, typer.Option(metavar="URL", help="The new store; an empty one.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="Else BACKBURNER_STORE."),
    ] = None,
    blobs_to: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Copy large contents there, too."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Delete what was moved away from the new store, or half a move there.",
        ),
    ] = False,
    app: AppOption = None,
    leave_app: Annotated[
        list[str] | None,
        typer.Option(
            "--leave",
            metavar="NAME",
            help="Leave the tables of this application behind. May be repeated.",
        ),
    ] = None,
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="Give up a move that is not over, and stay."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Move everything to another database, compared row by row. Stop workers first."""
    from backburner.stores.moving import CopyDiffers, MoveRefused

    if abandon == (to is not None):
        refuse("name the new store with --to, or give up a move with --abandon")
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
            f"{error}; nothing was left: mend it and move again with --replace",
        )
    except (StoreUnavailable, OSError) as error:
        raise ConfigurationError(f"a store cannot be used: {error}") from error


async def _abandon(settings: Settings) -> None:
    from backburner.stores import moving

    async with AsyncExitStack() as stack:
        source = await _store(settings.store, stack, faults.parse(None))
        place = await moving.abandon(source.side())
    printing.say(f"the move to {place} is given up; what came there is left there")


async def _move(settings: Settings, to: str, wanted: "_Options") -> None:
    from backburner.stores.moving import Moved, Mover, Options

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
        printing.say(f"tables that were left behind: {', '.join(strangers)}")
    printing.say(f"large contents: {_where(settings, theirs, blobs_to)}")
    told = "every row was compared" if moved else "it had been compared before"
    printing.say(f"moved to {place}, {told}: set BACKBURNER_STORE to it everywhere")


async def _schemas(
    source: Any, chosen: Sequence[App], left: Collection[str]
) -> Sequence[Any]:
    """Return the tables of the applications that the source has some of."""
    from backburner.stores.applications import AppSchema, movable
    from backburner.stores.moving import MoveRefused

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
    """Say whether a store has tables of an application; they must have revisions."""
    if not app.migrations:
        if not declared:
            return False
        raise ConfigurationError(
            f"application {app.name!r} declares tables but no migrations: nothing can "
            f"make them in the new store; leave them behind with --leave {app.name}"
        )
    version_table = schemas.history_of(app).version_table
    return version_table in names or any(table.name in names for table in declared)


async def _left_behind(source: Any, target: Any, stack: AsyncExitStack) -> list[str]:
    """Return the tables of the source that the target has not, indexes left out."""
    from backburner.stores import contents

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
    """Applications whose tables are left behind."""


async def _store(url: str, stack: AsyncExitStack, chosen: Faults) -> Any:
    store = find_store(url, SystemClock(), chosen)
    stack.push_async_callback(store.close)
    if not hasattr(store, "side"):
        refuse("this kind of store cannot be moved")
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
