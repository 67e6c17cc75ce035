"""`migrate`: bring the store's schema to what this release needs."""

from typing import Annotated, Any

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption
from backburner.cli.exits import Exit, leave
from backburner.cli.serving import StoreOption
from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.ports.faults import NoFaults
from backburner.settings import read
from backburner.wiring import find_store


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

    try:
        found: Any = find_store(read(store=store).store, SystemClock(), NoFaults())
        before = found.version()
        if before is not None and before > HEAD:
            raise ConfigurationError(
                f"the schema is at {before}, newer than this release's {HEAD}: "
                "install the release that made it"
            )
        after = before if check else found.migrate()[1]
    except (StoreUnavailable, OSError) as error:
        raise ConfigurationError(f"BACKBURNER_STORE cannot be used: {error}") from error
    if as_json:
        printing.write_json({"before": before, "after": after, "needed": HEAD})
    else:
        printing.write_line(f"schema {after or 'none'}, needed {HEAD}")
    if after != HEAD:
        leave(Exit.PROBLEMS, "run `backburner migrate`")
