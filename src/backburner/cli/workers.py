"""Commands for workers: list, drain and resume."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from backburner.cli.remote import Server, remote
from backburner.client import Worker

app = typer.Typer(no_args_is_help=True, help="List, drain and resume workers.")

HEADINGS = ("WORKER", "STATE", "HOST", "PID", "SLOTS", "STARTED", "QUEUES")
IdArgument = Annotated[
    str, typer.Argument(metavar="WORKER", help="Id, as `list` prints it.")
]


@app.command("list")
@remote
def listing(server: Server) -> None:
    """List the workers, the oldest first."""
    server.write_all(HEADINGS, server.client.workers(), _row)


@app.command()
@remote
def drain(server: Server, worker: IdArgument) -> None:
    """Let a worker finish its jobs and claim no more."""
    drained = server.client.drain_worker(worker)
    server.write(drained, _state(drained))


@app.command()
@remote
def resume(server: Server, worker: IdArgument) -> None:
    """Let a drained worker claim jobs again."""
    resumed = server.client.resume_worker(worker)
    server.write(resumed, _state(resumed))


def _row(worker: Worker) -> Sequence[Any]:
    return (
        worker["id"],
        _state(worker),
        worker["host"],
        worker["pid"],
        worker["slots"],
        worker["started_at"],
        ", ".join(worker["queues"]),
    )


def _state(worker: Worker) -> str:
    return "draining" if worker["draining"] else "working"
