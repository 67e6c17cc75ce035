"""Commands for workers: list, drain and resume."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from backburner.cli.remote import Server, lists, remote
from backburner.client import Worker

app = typer.Typer(help="List, drain and resume workers.")

HEADINGS = (
    "WORKER",
    "STATE",
    "HOST",
    "PID",
    "JOBS",
    "SLOTS",
    "LAG",
    "MEMORY",
    "STARTED",
    "QUEUES",
)
IdArgument = Annotated[
    str, typer.Argument(metavar="WORKER", help="Id, as `list` prints it.")
]


@lists(app)
@remote
def listing(server: Server) -> None:
    """List the workers, oldest first."""
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
    lag, memory = worker["event_loop_lag_seconds"], worker["memory_bytes"]
    return (
        worker["id"],
        _state(worker),
        worker["host"],
        worker["pid"],
        worker["running"],
        worker["slots"],
        None if lag is None else f"{lag:.3f}s",
        None if memory is None else f"{memory / 1e6:.0f}MB",
        worker["started_at"],
        ", ".join(worker["queues"]),
    )


def _state(worker: Worker) -> str:
    return "draining" if worker["draining"] else "working"
