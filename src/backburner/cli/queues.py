"""The commands about queues: how full, how limited, and whether they go on."""

from typing import Annotated

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.client import Queue

app = typer.Typer(no_args_is_help=True, help="Look at queues; pause and resume them.")

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
    """List the queues, how full they are and what they allow."""
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
    """Have nothing of a queue start; what runs goes on."""
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
    """Let a queue go on."""
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
    """Write how long jobs are kept, those that succeeded before those that failed."""
    keep = queue["keep"]
    if keep is None:
        return None
    ages = (keep["succeeded_seconds"], keep["failed_seconds"])
    counts = (keep["succeeded_count"], keep["failed_count"])
    return ", ".join(
        f"{'*' if age is None else f'{age:g} s'}{'' if n is None else f' / {n}'}"
        for age, n in zip(ages, counts, strict=True)
    )
