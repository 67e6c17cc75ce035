"""Notes whose words are counted in the background, with full-text search."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import typer

from backburner import App, Backburner, Queue, read_settings
from example_notes import tables
from example_notes.importing import imported, split
from example_notes.settings import NotesSettings
from example_notes.work import count, counted

commands = typer.Typer(help="Look after notes.")


@commands.callback()
def group() -> None:
    """Keep `settings` a command of a group."""


@commands.command()
def settings() -> None:
    """Print the maximum length of a note."""
    typer.echo(read_settings(NotesSettings).longest)


@asynccontextmanager
async def serves(backburner: Backburner) -> AsyncIterator[Sequence[Any]]:
    """Yield the routes while they are served."""
    from example_notes import import_routes, routes  # noqa: PLC0415 - not in a worker

    yield [*routes.routes(backburner), *import_routes.routes(backburner)]


app = App(
    "notes",
    capabilities=[count, split, imported],
    queues=[Queue("notes", concurrency=4)],
    serves=serves,
    settings=NotesSettings,
    migrations="example_notes.migrations",
    tables=lambda: [tables.notes],
    rebuild=tables.rebuild,
    erase=tables.erase,
    commands=commands,
    pages=files("example_notes") / "pages",
    log_keys=["noteWords"],
    metrics=[counted],
)
