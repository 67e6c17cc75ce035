"""`migrate`: bring the store's schema to what this release needs."""

import asyncio
from typing import Annotated

import typer

from backburner.adapters import find_store
from backburner.cli import printing
from backburner.cli.asking import JsonOption
from backburner.cli.exits import Exit, leave
from backburner.cli.serving import StoreOption
from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.ports.faults import NoFaults
from backburner.ports.store import Store
from backburner.settings import read


def migrate(
    *,
    store: StoreOption = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit 9 if it is not up to date."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring the schema up to date. Workers may run meanwhile."""
    from backburner.stores.migrations import HEAD

    found = find_store(read(store=store).store, SystemClock(), NoFaults())
    try:
        before, after = asyncio.run(_migrate(found, HEAD, check=check))
    except (StoreUnavailable, OSError) as error:
        raise ConfigurationError(f"BACKBURNER_STORE cannot be used: {error}") from error
    if as_json:
        printing.write_json({"before": before, "after": after, "needed": HEAD})
    else:
        printing.write_line(f"schema {after or 'none'}, needed {HEAD}")
    if after != HEAD:
        leave(Exit.PROBLEMS, "run `backburner migrate`")


async def _migrate(
    store: Store, head: str, *, check: bool
) -> tuple[str | None, str | None]:
    try:
        before = await store.version()
        if before is not None and before > head:
            raise ConfigurationError(
                f"the schema is at {before}, newer than this release's {head}: "
                "install the release that made it"
            )
        return (before, before) if check else await store.migrate()
    finally:
        await store.close()
