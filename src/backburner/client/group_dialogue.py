"""Requests about flows and batches, and their responses, without I/O."""

from collections.abc import Generator, Sequence
from typing import Any, Final
from urllib.parse import quote

from backburner.client.dialogue import (
    Dialogue,
    RequestPolicy,
    SendRequest,
    Step,
    given,
    job_path,
    new_key,
)
from backburner.client.errors import NotYet
from backburner.client.group_options import (
    BatchesQuery,
    BatchOptions,
    FlowOptions,
    FlowsQuery,
    NewFlow,
    NewJob,
    NewStep,
)
from backburner.client.options import is_final
from backburner.domain.events.event import BATCH_FINISHED, FLOW_ENDS
from backburner.domain.jobs.job import JobState
from backburner.shapes.groups import Batch, Flow

_BATCH_ENDS: Final = frozenset({BATCH_FINISHED})


def submit_flow(
    ask: RequestPolicy, steps: Sequence[NewStep], key: str | None, options: FlowOptions
) -> Dialogue[Flow]:
    """Submit a flow; with a key, it is safe to repeat."""
    body = {"steps": [*steps], **given(options)}
    return ask.send("/v1/flows", body, key)


def get_flow(ask: RequestPolicy, flow_id: str) -> Dialogue[Flow]:
    """Return a flow with its steps."""
    return ask.look(_flow_path(flow_id))


def follow_flow(
    ask: RequestPolicy, flow_id: str, timeout: float | None
) -> Dialogue[Flow]:
    """Return a flow once it has ended, or as it is after the timeout."""
    return ask.follow_at(_flow_path(flow_id), timeout)


def flow_results(
    ask: RequestPolicy, flow_id: str, timeout: float | None
) -> Dialogue[dict[str, Any]]:
    """Wait for the end; return the outputs of the succeeded steps by name."""
    flow = yield from _ended(follow_flow(ask, flow_id, timeout))
    outputs: dict[str, Any] = {}
    for step in flow.get("steps", ()):
        if step["state"] == JobState.SUCCEEDED:
            result_path = f"{job_path(step['id'])}/result"
            outputs[step["name"]] = yield from ask.ask(SendRequest("GET", result_path))
    return outputs


def _ended(following: Dialogue[Flow]) -> Generator[Step, Any, Flow]:
    flow = yield from following
    if not is_final(flow):
        raise NotYet(flow)
    return flow


def flow_events(ask: RequestPolicy, flow_id: str) -> Dialogue[None]:
    """Emit all events of a flow and its steps, until the flow ends."""
    return ask.stream(f"{_flow_path(flow_id)}/events", FLOW_ENDS)


def cancel_flow(ask: RequestPolicy, flow_id: str) -> Dialogue[Flow]:
    """Cancel everything of a flow that has not ended; it is safe to repeat."""
    request = SendRequest("POST", f"{_flow_path(flow_id)}/cancel")
    return ask.ask(request)


def retry_flow(ask: RequestPolicy, flow_id: str) -> Dialogue[Flow]:
    """Retry a flow's failed steps; not repeated, as they may fail in between."""
    request = SendRequest("POST", f"{_flow_path(flow_id)}/retry", is_repeatable=False)
    return ask.ask(request)


def flows(ask: RequestPolicy, which: FlowsQuery) -> Dialogue[None]:
    """Emit flows, newest first."""
    return ask.pages("/v1/flows", which)


def open_batch(
    ask: RequestPolicy,
    jobs: Sequence[NewJob],
    flows: Sequence[NewFlow],
    key: str | None,
    options: BatchOptions,
) -> Dialogue[Batch]:
    """Open a batch; with a key, it is safe to repeat."""
    body = {"jobs": [*jobs], "flows": [*flows], **given(options)}
    return ask.send("/v1/batches", body, key)


def fill_batch(
    ask: RequestPolicy,
    batch_id: str,
    jobs: Sequence[NewJob],
    flows: Sequence[NewFlow],
    *,
    seal: bool,
) -> Dialogue[Batch]:
    """Add members to a batch; it is safe to repeat."""
    body = {"jobs": [*jobs], "flows": [*flows], "seal": seal}
    path = f"{_batch_path(batch_id)}/members"
    return ask.send(path, body, new_key())


def get_batch(ask: RequestPolicy, batch_id: str) -> Dialogue[Batch]:
    """Return a batch with its counts."""
    return ask.look(_batch_path(batch_id))


def follow_batch(
    ask: RequestPolicy, batch_id: str, timeout: float | None
) -> Dialogue[Batch]:
    """Return a batch once it is finished, or as it is after the timeout."""
    return ask.follow_at(_batch_path(batch_id), timeout)


def batch_events(ask: RequestPolicy, batch_id: str) -> Dialogue[None]:
    """Emit the events of a batch as a whole, until it is finished."""
    return ask.stream(f"{_batch_path(batch_id)}/events", _BATCH_ENDS)


def cancel_batch(ask: RequestPolicy, batch_id: str) -> Dialogue[Batch]:
    """Cancel everything of a batch that has not ended; it is safe to repeat."""
    request = SendRequest("POST", f"{_batch_path(batch_id)}/cancel")
    return ask.ask(request)


def retry_batch(ask: RequestPolicy, batch_id: str) -> Dialogue[Batch]:
    """Retry a batch's failed members; not repeated, as they may fail in between."""
    request = SendRequest("POST", f"{_batch_path(batch_id)}/retry", is_repeatable=False)
    return ask.ask(request)


def batches(ask: RequestPolicy, which: BatchesQuery) -> Dialogue[None]:
    """Emit batches, newest first."""
    return ask.pages("/v1/batches", which)


def _flow_path(flow_id: str) -> str:
    return f"/v1/flows/{quote(flow_id, safe='', errors='replace')}"


def _batch_path(batch_id: str) -> str:
    return f"/v1/batches/{quote(batch_id, safe='', errors='replace')}"
