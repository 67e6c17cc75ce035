"""Commands for flows: jobs that depend on other jobs."""

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from backburner.cli import groups, printing
from backburner.cli.asking import read_json, read_text
from backburner.cli.exits import refuse
from backburner.cli.groups import (
    IdArgument,
    LimitOption,
    StateOption,
    TagOption,
    TimeoutOption,
)
from backburner.cli.remote import Server, lists, remote
from backburner.client import Flow, Step

app = typer.Typer(help="List, submit, cancel and retry flows.")

HEADINGS: Final = ("ID", "STATE", "GENERATION", "TAGS", "CREATED", "FINISHED")
STEPS: Final = ("STEP", "STATE", "CAPABILITY", "ATTEMPT", "NEEDS", "JOB", "ERROR")
FIELDS: Final = frozenset({"steps", "deadline", "tags", "callback"})


@lists(app)
@remote
def listing(
    server: Server,
    *,
    state: StateOption = None,
    tag: TagOption = None,
    limit: LimitOption = 50,
) -> None:
    """List flows, newest first."""
    found = server.client.flows(state=state, tag=tag, limit=min(limit, groups.PAGE))
    server.write_all(HEADINGS, islice(found, limit), _row)


@app.command()
@remote
def show(server: Server, flow_id: IdArgument) -> None:
    """Show the steps of a flow in the order of their dependencies."""
    _show(server.client.get_flow(flow_id), as_json=server.as_json)


@app.command()
@remote
def submit(
    server: Server,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE|-", help='JSON: {"steps": […]}; - reads stdin.'),
    ],
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it ends and show the steps.")
    ] = False,
    timeout: TimeoutOption = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: a repeat returns the same flow."),
    ] = None,
) -> None:
    """Submit a flow and print its id, or its steps with --wait."""
    groups.check_timeout(timeout, wait=wait)
    asked = _read(file)
    steps = asked.pop("steps", [])
    flow = server.client.submit_flow(steps, key=key, **asked).flow
    if not wait:
        server.write(flow, flow["id"])
        return
    ended = groups.wait(server.client, flow["id"], timeout)
    _show(ended, as_json=server.as_json)
    groups.leave_by(ended)


@app.command()
@remote
def cancel(server: Server, flow_id: IdArgument) -> None:
    """Cancel all unfinished steps of a flow. Repeating this is not an error."""
    seen = server.client.cancel_flow(flow_id)
    server.write(seen, groups.state_of(seen))


@app.command()
@remote
def retry(server: Server, flow_id: IdArgument) -> None:
    """Retry the failed steps of a flow; it continues from there."""
    seen = server.client.retry_flow(flow_id)
    server.write(seen, groups.state_of(seen))


def _read(file: str) -> dict[str, Any]:
    """Read the flow to submit; the server validates it."""
    text = sys.stdin.read() if file == "-" else read_text(Path(file), "FILE")
    asked = read_json(text)
    if not isinstance(asked, dict):
        refuse('the flow must be an object: {"steps": […]}')
    unknown = sorted(asked.keys() - FIELDS)
    if unknown:
        refuse(f"no such field: {unknown[0]!r}; a flow has {', '.join(sorted(FIELDS))}")
    return asked


def _row(flow: Flow) -> Sequence[Any]:
    return (
        flow["id"],
        flow["state"],
        flow["generation"],
        ",".join(flow["tags"]),
        flow["created_at"],
        flow["finished_at"],
    )


def _show(flow: Any, *, as_json: bool) -> None:
    if as_json:
        printing.write_json(flow)
        return
    printing.write_rows(STEPS, map(_step, flow["steps"]))
    counts = ", ".join(f"{count} {state}" for state, count in flow["counts"].items())
    printing.say(f"{flow['id']} {flow['state']}: {counts}")


def _step(step: Step) -> Sequence[Any]:
    error = step["error"]
    return (
        step["name"],
        step["state"],
        step["capability"],
        f"{step['attempt']}/{step['max_attempts']}",
        ",".join(need["step"] for need in step["needs"]),
        step["id"],
        f"{error['code']}: {error['message']}" if error else None,
    )
