"""Commands for users. They use the store directly, without a server."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Annotated

import typer

from backburner.adapters import find_store
from backburner.backburner import Backburner
from backburner.cli import faults, printing
from backburner.cli.applications import AppOption, Present, find_present, load
from backburner.cli.asking import JsonOption
from backburner.cli.exits import Exit, leave, needing_the_store, refuse
from backburner.cli.serving import StoreOption
from backburner.clock import SystemClock, SystemDice
from backburner.domain.jobs.job import Owner
from backburner.engine.maintenance.erasure import Eraser, StillWorking
from backburner.ports.faults import NoFaults
from backburner.settings import Settings, fault, read

app = typer.Typer(no_args_is_help=True, help="Erase users.")

ACTOR = "command line"


@app.callback()
def users() -> None:
    """Make `erase` a subcommand, although it is the only one."""


@app.command()
def erase(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Tenant name.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="Id of the user.")],
    *,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the user's unfinished jobs first.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation.")
    ] = False,
    leave_app: Annotated[
        list[str] | None,
        typer.Option(
            "--leave",
            metavar="NAME",
            help="Keep the rows of this application, which is not installed.",
        ),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Delete a user's jobs, events, contents, keys and rows in all applications.

    Totals of usage and budgets stay, without the user's name. If it is interrupted,
    run it again to complete it.
    """
    if not tenant.strip() or not user.strip():
        refuse("give a tenant and a user")
    settings = read(store=store, apps=app)
    if not yes:
        told = f"Erase user {user!r} of tenant {tenant!r} and all their data?"
        typer.confirm(told, abort=True, err=True)
    try:
        with needing_the_store():
            counts = asyncio.run(
                _erase(settings, Owner(tenant, user), leave_app or (), cancel=cancel)
            )
    except StillWorking as error:
        leave(Exit.CONFLICT, str(error))
    if as_json:
        printing.write_json(counts)
    else:
        printing.write_rows(("WHAT", "ROWS"), [*counts.items()])


async def _erase(
    settings: Settings, owner: Owner, left: Collection[str], *, cancel: bool
) -> Mapping[str, int]:
    present = await _present(settings, left)
    async with Backburner(
        settings, apps=present.apps, faults=faults.parse(fault())
    ) as backburner:
        for name, why in backburner.unavailable.items():
            leave(Exit.CONFLICT, f"application {name!r} cannot erase its rows: {why}")
        for one in present.apps:
            if one.erase is None and one.tables is not None:
                printing.say(
                    f"application {one.name!r} has no function to erase a user: its "
                    "rows are not deleted"
                )
        erasing = {a.name: a.erase for a in present.apps if a.erase is not None}
        eraser = Eraser(backburner.engine, erasing, faults.parse(fault()))
        alias = f"erased_{SystemDice().token()}"
        return await eraser.run(owner, alias, actor=ACTOR, cancel=cancel)


async def _present(settings: Settings, left: Collection[str]) -> Present:
    """Return the applications with rows in the store; all must be installed."""
    store = find_store(settings.store, SystemClock(), NoFaults())
    try:
        present = await find_present(store, load(settings.apps))
    finally:
        await store.close()
    for name, why in present.missing.items():
        if name not in left:
            leave(
                Exit.CONFLICT,
                f"the store has tables of application {name!r}, but {why}: install it, "
                f"or leave its rows with --leave {name}",
            )
    return present
