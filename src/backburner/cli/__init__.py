"""
The command line. It parses arguments and prints results; the server decides.

Exit codes: 0 ok, 1 job failed, 2 usage, 3 not found, 4 auth, 5 conflict, 6 limit,
7 unavailable, 8 wait timed out (the job continues), 9 doctor, migrate --check or move
found problems, 130 interrupted.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version as installed
from typing import Annotated, Final

import typer

from backburner.cli import (
    app_commands,
    batches,
    budgets,
    capabilities,
    dead_letters,
    demo,
    doctor,
    exits,
    flows,
    guard,
    helping,
    jobs,
    keys,
    lanes,
    migrate,
    move,
    printing,
    queues,
    schedules,
    serving,
    signals,
    top,
    usage,
    users,
    webhooks,
    workers,
)
from backburner.cli.asking import JsonOption

helping.install()
app = typer.Typer(
    name="backburner",
    cls=app_commands.Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 ok, 1 job failed, 2 usage, 3 not found, 4 auth, 5 conflict, "
    "6 limit, 7 unavailable, 8 wait timed out, 9 problems found, 130 interrupted.",
)


def version(*, as_json: JsonOption = False) -> None:
    """Print the version."""
    release = installed("backburner")
    if as_json:
        printing.write_json({"version": release})
    else:
        printing.write_line(release)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


@app.callback()
def options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Run, submit and inspect durable asynchronous AI jobs."""


COMMANDS: Final[Mapping[str, Sequence[Callable[..., None]]]] = {
    "Processes": (serving.serve, serving.worker, demo.demo),
    "Jobs": (
        jobs.submit,
        jobs.status,
        jobs.wait,
        jobs.watch,
        jobs.result,
        jobs.cancel,
        jobs.retry,
        jobs.change,
        jobs.steps,
        jobs.fork,
        signals.signal,
        signals.questions,
        signals.answer,
        jobs.jobs,
        capabilities.capabilities,
        usage.quote,
        usage.usage,
    ),
    "Maintenance": (
        top.top,
        migrate.migrate,
        move.move,
        doctor.doctor,
        version,
    ),
}

for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(flows.app, name="flows", rich_help_panel="Jobs")
app.add_typer(batches.app, name="batches", rich_help_panel="Jobs")
app.add_typer(dead_letters.app, name="dead-letters", rich_help_panel="Jobs")
app.add_typer(queues.app, name="queues", rich_help_panel="Jobs")
app.add_typer(workers.app, name="workers", rich_help_panel="Jobs")
app.add_typer(schedules.app, name="schedules", rich_help_panel="Jobs")
app.add_typer(budgets.app, name="budgets", rich_help_panel="Jobs")
app.add_typer(webhooks.app, name="webhooks", rich_help_panel="Jobs")
app.add_typer(lanes.app, name="lanes", rich_help_panel="Maintenance")
app.add_typer(guard.app, name="guard", rich_help_panel="Maintenance")
app.add_typer(keys.app, name="keys", rich_help_panel="Maintenance")
app.add_typer(users.app, name="users", rich_help_panel="Maintenance")


def main() -> None:
    """Run the command line and exit with its code."""
    exits.run(app)
