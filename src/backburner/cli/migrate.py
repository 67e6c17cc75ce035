"""`migrate`: brings the schema of the store up to date."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from backburner import schemas
from backburner.adapters import find_store
from backburner.app import App
from backburner.cli import printing
from backburner.cli.applications import AppOption, find_present, load
from backburner.cli.asking import JsonOption
from backburner.cli.exits import Exit, leave, needing_the_store
from backburner.cli.serving import StoreOption
from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError
from backburner.ports.faults import NoFaults
from backburner.schemas import Migrated
from backburner.settings import Settings, read


class _Outcome(NamedTuple):
    before: str | None
    after: str | None
    apps: Sequence[Migrated] = ()
    missing: Mapping[str, str] = {}


def migrate(
    *,
    store: StoreOption = None,
    app: AppOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Change nothing; exit with 9 if a schema is outdated."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Bring the schema up to date. Stop servers and workers if the changelog says so.

    Also migrates the tables of the given applications and of all installed ones that
    have tables in this store.
    """
    from backburner.stores.migrations import HEAD

    settings = read(store=store, apps=app)
    found = find_store(settings.store, SystemClock(), NoFaults())
    with needing_the_store():
        outcome = asyncio.run(_migrate(found, HEAD, load(settings.apps), check=check))
    _show(outcome, HEAD, as_json=as_json)
    if outcome.after != HEAD:
        leave(Exit.PROBLEMS, "the schema is outdated: run `backburner migrate`")
    failed = [
        f"{told.application}: {told.problem}" for told in outcome.apps if told.problem
    ]
    if failed:
        leave(Exit.PROBLEMS, "; ".join(failed))


def upgrade(settings: Settings, apps: Sequence[App]) -> None:
    """Bring a store up to date that only this process uses."""
    from backburner.stores.migrations import HEAD

    found = find_store(settings.store, SystemClock(), NoFaults())
    with needing_the_store():
        asyncio.run(_migrate(found, HEAD, apps, check=False))


def _show(outcome: _Outcome, head: str, *, as_json: bool) -> None:
    if as_json:
        engine = {"before": outcome.before, "after": outcome.after, "needed": head}
        printing.write_json(engine)
        for told in outcome.apps:
            printing.write_json(told._asdict())
    else:
        printing.write_line(f"schema {outcome.after or 'none'}, needed {head}")
        for told in outcome.apps:
            printing.write_line(
                f"{told.application} {told.after or 'none'}, needed {told.needed}"
            )
    for name, why in outcome.missing.items():
        printing.say(f"the tables of application {name!r} are left as they are: {why}")


async def _migrate(
    store: Any, head: str, chosen: Sequence[App], *, check: bool
) -> _Outcome:
    try:
        before = await store.version()
        if before is not None and before > head:
            raise ConfigurationError(
                f"the schema is at {before}, newer than this release's {head}: "
                "install the release that created it"
            )
        _, after = (before, before) if check else await store.migrate()
        present = await find_present(store, chosen)
        act = schemas.compare if check else schemas.migrate
        apps = [await act(store, app) for app in present.apps if app.migrations]
        return _Outcome(before, after, apps, present.missing)
    finally:
        await store.close()
