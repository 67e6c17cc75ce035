"""Helpers that the commands for flows and batches share."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import typer

from backburner.cli import event_lines
from backburner.cli.exits import Exit, leave, refuse
from backburner.client import Batch, Client, Flow, is_final
from backburner.domain.groups.flow import FlowState

T = TypeVar("T")

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id, as `submit` and lists print it.")
]
StateOption = Annotated[str | None, typer.Option(help="Only those in this state.")]
TagOption = Annotated[str | None, typer.Option(help="Only those with this tag.")]
LimitOption = Annotated[int, typer.Option(min=1, help="Maximum number of rows.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0, help="Stop waiting after this time; exit 8."
    ),
]

PAGE = 200


def is_group(name: str) -> bool:
    """Return whether an id is that of a flow or batch."""
    return name.startswith(("flow_", "batch_"))


def job(name: str) -> str:
    """Return a job id; for other ids, name the commands to use."""
    if is_group(name):
        kind = "flows" if name.startswith("flow_") else "batches"
        refuse(f"{name} is not a job: see `backburner {kind} --help`")
    return name


def check_timeout(timeout: float | None, *, wait: bool) -> None:
    """Refuse a time to wait for a command that does not wait."""
    if timeout is not None and not wait:
        refuse("--timeout needs --wait")


def wait(client: Client, name: str, timeout: float | None) -> Flow | Batch:
    """Return a flow or batch once it has ended, or as it is after the timeout."""
    try:
        if name.startswith("flow_"):
            return client.wait_flow(name, timeout=timeout)
        return client.wait_batch(name, timeout=timeout)
    except KeyboardInterrupt:
        leave(Exit.INTERRUPTED, f"interrupted; {name} continues")


def watch(client: Client, name: str, *, as_json: bool) -> Flow | Batch:
    """Print the events of a flow or batch until it ends, then return it."""
    if name.startswith("flow_"):
        steps = client.get_flow(name).get("steps", ())
        events = client.flow_events(name)
        names = {step["id"]: step["name"] for step in steps}
        event_lines.write_events(
            events, as_json=as_json, with_subject=True, names=names
        )
        return client.get_flow(name)
    event_lines.write_events(client.batch_events(name), as_json=as_json)
    return client.get_batch(name)


def leave_by(seen: Flow | Batch) -> None:
    """Exit with the code of a flow or batch; return if all of it succeeded."""
    name, state = seen["id"], seen["state"]
    if not is_final(seen):
        leave(
            Exit.TIMED_OUT,
            f"{name} is {state} and continues; wait for it with "
            f"`backburner wait {name}`",
        )
    if "sealed" in seen:
        failed = _unsuccessful(seen)
        if failed:
            leave(
                Exit.JOB_FAILED,
                f"{name} {state}, but {failed} of its members did not succeed",
            )
    elif state != FlowState.SUCCEEDED:
        leave(Exit.JOB_FAILED, f"{name} {state}; see `backburner flows show {name}`")


def _unsuccessful(batch: Any) -> int:
    counts = batch["counts"]
    return int(counts["total"] - counts["members"].get("succeeded", 0))


def waits_for(wait: Mapping[str, Any] | None) -> str:
    """Return what a job waits for, to be shown after its state."""
    if wait is None:
        return ""
    named = " ".join(filter(None, (wait["reason"], wait.get("name"))))
    until = f" until {wait['until']}" if "until" in wait else ""
    return f" ({named}{until})"


def state_of(seen: Mapping[str, Any]) -> str:
    """Return the current state, and what a job waits for."""
    return str(seen["state"]) + waits_for(seen.get("wait"))
