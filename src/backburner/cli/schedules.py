"""Commands for schedules: list, save, delete, pause, resume and run now."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from backburner.cli.asking import read_json
from backburner.cli.remote import Server, lists, remote
from backburner.client import Schedule, ScheduleOptions

app = typer.Typer(help="List, save, pause and run schedules.")

HEADINGS = ("SCHEDULE", "CAPABILITY", "CRON", "ZONE", "MISSED", "NEXT", "LAST", "STATE")
NameArgument = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="Name of the schedule.")
]


@lists(app)
@remote
def listing(server: Server) -> None:
    """List the schedules and when each fires next."""
    server.write_all(HEADINGS, server.client.schedules(), _row)


@app.command("set")
@remote
def save(
    server: Server,
    name: NameArgument,
    capability: Annotated[
        str, typer.Argument(metavar="CAPABILITY", help="Capability of its jobs.")
    ],
    cron: Annotated[
        str, typer.Argument(metavar="CRON", help='Cron expression: "0 3 * * *".')
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="Input, as JSON.")
    ] = None,
    *,
    timezone: Annotated[str, typer.Option(help="IANA time zone.")] = "UTC",
    missed: Annotated[
        str, typer.Option(help="Missed ticks: skip, run_once or run_all.")
    ] = "skip",
) -> None:
    """Create a schedule, or replace a saved one."""
    said: ScheduleOptions = {"timezone": timezone, "missed": missed}
    if text is not None:
        said["input"] = read_json(text)
    saved = server.client.set_schedule(name, capability, cron, **said)
    server.write(saved, _told(saved))


@app.command()
@remote
def delete(server: Server, name: NameArgument) -> None:
    """Delete a saved schedule; the jobs that it submitted stay."""
    server.client.delete_schedule(name)


@app.command()
@remote
def pause(server: Server, name: NameArgument) -> None:
    """Pause a schedule: it submits nothing."""
    paused = server.client.pause_schedule(name)
    server.write(paused, _told(paused))


@app.command()
@remote
def resume(server: Server, name: NameArgument) -> None:
    """Resume a schedule: it fires at its next tick."""
    resumed = server.client.resume_schedule(name)
    server.write(resumed, _told(resumed))


@app.command()
@remote
def run(server: Server, name: NameArgument) -> None:
    """Submit a schedule's job now and print its id."""
    job = server.client.run_schedule(name)
    server.write(job, job["id"])


def _row(schedule: Schedule) -> Sequence[Any]:
    return (
        schedule["name"],
        schedule["capability"],
        schedule["cron"],
        schedule["timezone"],
        schedule["missed"],
        schedule["next_at"],
        schedule["last_at"],
        _state(schedule),
    )


def _told(schedule: Schedule) -> str:
    return f"{_state(schedule)}, next {schedule['next_at']}"


def _state(schedule: Schedule) -> str:
    return "paused" if schedule["paused"] else "active"
