"""Commands for queues: depths, limits, pause and resume."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from backburner.cli.remote import Server, lists, remote
from backburner.client import Queue

app = typer.Typer(help="List, pause and resume queues.")

HEADINGS = (
    "QUEUE",
    "STATE",
    "QUEUED",
    "RUNNING",
    "IN/MIN",
    "OUT/MIN",
    "CONCURRENCY",
    "RATE",
    "UNTIL",
    "COMPLETED",
    "FAILED",
    "KEEPS",
)

UNITS = {"d": 86_400, "h": 3_600, "m": 60}

NameArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue.")
]


@lists(app)
@remote
def listing(server: Server) -> None:
    """List the queues with their depths and limits."""
    server.write_all(HEADINGS, server.client.queues(), _row)


@app.command()
@remote
def pause(server: Server, queue: NameArgument) -> None:
    """Pause a queue: no job starts, running jobs continue."""
    paused = server.client.pause_queue(queue)
    server.write(paused, _state(paused))


@app.command()
@remote
def resume(server: Server, queue: NameArgument) -> None:
    """Resume a paused queue."""
    resumed = server.client.resume_queue(queue)
    server.write(resumed, _state(resumed))


def _row(queue: Queue) -> Sequence[Any]:
    return (
        queue["name"],
        _state(queue),
        queue["queued"],
        queue["running"],
        f"{queue['submitted_per_minute']:g}",
        f"{queue['ended_per_minute']:g}",
        queue["concurrency"],
        _rate(queue),
        queue["limited_until"],
        queue["totals"]["completed"],
        queue["totals"]["failed"],
        _kept(queue),
    )


def _state(queue: Queue) -> str:
    if queue["paused"]:
        return "paused"
    return "limited" if queue["limited_until"] else "open"


def _rate(queue: Queue) -> str | None:
    rate = queue["rate"]
    return None if rate is None else f"{rate['limit']}/{rate['per_seconds']:g}s"


def _kept(queue: Queue) -> str | None:
    """Return the retention of succeeded and failed jobs as text."""
    keep = queue["keep"]
    if keep is None:
        return None
    ages = (keep["succeeded_seconds"], keep["failed_seconds"])
    counts = (keep["succeeded_count"], keep["failed_count"])
    return ", ".join(
        f"{'*' if age is None else _age(age)}{'' if n is None else f' / {n}'}"
        for age, n in zip(ages, counts, strict=True)
    )


def _age(seconds: float) -> str:
    """Write a duration in the largest unit that divides it, as options take it."""
    if not seconds:
        return "0s"
    for unit, size in UNITS.items():
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
