"""`move`: takes a whole deployment from one database to another."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated, Any

import typer

from backburner.adapters import blobs_url, carry_blobs, find_store
from backburner.cli import faults, printing
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
    settings = read(store=from_)
    try:
        if to is None:
            asyncio.run(_abandon(settings))
        else:
            asyncio.run(_move(settings, to, blobs_to, replace=replace, as_json=as_json))
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


async def _move(
    settings: Settings, to: str, blobs_to: str | None, *, replace: bool, as_json: bool
) -> None:
    from backburner.stores import contents
    from backburner.stores.moving import Moved, Mover, Options

    chosen = faults.parse(fault())
    theirs = settings.model_copy(
        update={"store": to, "blobs": blobs_to or settings.blobs}
    )
    async with AsyncExitStack() as stack:
        source = await _store(settings.store, stack, chosen)
        target = await _store(to, stack, chosen)
        options = Options(lease=settings.lease, replace=replace)
        mover = Mover(source, target, options, chosen, _tell)
        move_id = SystemDice().token()
        moved = await mover.run(move_id, lambda: _carry(settings, theirs, blobs_to))
        side = source.side()
        stack.push_async_callback(side.close)
        strangers = await side.read(contents.strangers)
        place = target.side().place
    if as_json:
        for table in moved:
            printing.write_json(table._asdict())
    elif moved:
        printing.write_rows(Moved._fields, moved)
    if strangers:
        printing.say(f"not Backburner's, and left behind: {', '.join(strangers)}")
    printing.say(f"large contents: {_where(settings, theirs, blobs_to)}")
    told = "every row was compared" if moved else "it had been compared before"
    printing.say(f"moved to {place}, {told}: set BACKBURNER_STORE to it everywhere")


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
