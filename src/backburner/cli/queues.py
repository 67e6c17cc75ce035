"""Commands for queues: depths, limits, pause and resume."""

from typing import Annotated

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.client import Queue

app = typer.Typer(no_args_is_help=True, help="List, pause and resume queues.")

HEADINGS = (
    "QUEUE",
    "STATE",
    "QUEUED",
    "RUNNING",
    "CONCURRENCY",
    "RATE",
    "UNTIL",
    "COMPLETED",
    "FAILED",
    "KEEPS",
)

NameArgument = Annotated[str, typer.Argument(metavar="QUEUE")]


@app.command("list")
def listing(
    *, as_json: JsonOption = False, url: UrlOption = None, api_key: KeyOption = None
) -> None:
    """List the queues with their depths and limits."""
    with connect(url, api_key) as client:
        queues = client.queues()
    if as_json:
        for queue in queues:
            printing.write_json(queue)
        return
    printing.write_rows(
        HEADINGS,
        (
            (
                queue["name"],
                _state(queue),
                queue["queued"],
                queue["running"],
                queue["concurrency"],
                _rate(queue),
                queue["limited_until"],
                queue["totals"]["completed"],
                queue["totals"]["failed"],
                _kept(queue),
            )
            for queue in queues
        ),
    )


@app.command()
def pause(
    queue: NameArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Pause a queue: no job starts, running jobs continue."""
    with connect(url, api_key) as client:
        _write(client.pause_queue(queue), as_json=as_json)


@app.command()
def resume(
    queue: NameArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Resume a paused queue."""
    with connect(url, api_key) as client:
        _write(client.resume_queue(queue), as_json=as_json)


def _write(queue: Queue, *, as_json: bool) -> None:
    if as_json:
        printing.write_json(queue)
    else:
        printing.write_line(_state(queue))


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
        f"{'*' if age is None else f'{age:g} s'}{'' if n is None else f' / {n}'}"
        for age, n in zip(ages, counts, strict=True)
    )
