"""Flows and batches as JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from backburner.domain.groups.batch import Batch, BatchState, Members, NewBatch
from backburner.domain.groups.flow import Edge, FlowRecord, FlowState, NewFlow, NewStep
from backburner.domain.groups.graph import Graph, Node
from backburner.domain.jobs.job import JobState, first_state
from backburner.http import wire
from backburner.ports.store.flows import FlowStep
from backburner.shapes import groups as shapes


def flow_location(flow_id: str) -> str:
    """Return the path of a flow."""
    return f"/v1/flows/{flow_id}"


def batch_location(batch_id: str) -> str:
    """Return the path of a batch."""
    return f"/v1/batches/{batch_id}"


def new_flow(flow: NewFlow) -> shapes.Flow:
    """Return a newly submitted flow as JSON."""
    steps = [_new_step(step) for step in flow.steps]
    return {
        "id": flow.id,
        "user": flow.owner.user,
        "state": FlowState.RUNNING,
        "generation": 0,
        "tags": list(flow.tags),
        "created_at": wire.time(flow.created_at),
        "deadline": wire.time(flow.deadline),
        "finished_at": None,
        "request_id": flow.request_id,
        "batch_id": None,
        "size": len(flow.steps),
        "links": _links(flow_location(flow.id), f"flow={flow.id}"),
        "counts": _counts(steps),
        "steps": steps,
    }


def flow(found: FlowRecord) -> shapes.Flow:
    """Return a flow as shown in lists."""
    return {
        "id": found.id,
        "user": found.owner.user,
        "state": found.state,
        "generation": found.generation,
        "tags": list(found.tags),
        "created_at": wire.time(found.created_at),
        "deadline": wire.time(found.deadline),
        "finished_at": wire.time(found.finished_at),
        "request_id": found.request_id,
        "batch_id": found.batch_id,
        "size": found.size,
        "links": _links(flow_location(found.id), f"flow={found.id}"),
    }


def whole_flow(found: FlowRecord, steps: Sequence[FlowStep]) -> shapes.Flow:
    """Return a flow with its steps."""
    shown = [step(one) for one in steps]
    return {**flow(found), "counts": _counts(shown), "steps": shown}


def graph(
    found: FlowRecord, shown: Graph, firsts: Sequence[FlowStep]
) -> shapes.FlowGraph:
    """Return the graph of a flow."""
    nodes = [
        _node(node, first) for node, first in zip(shown.nodes, firsts, strict=True)
    ]
    counts: Counter[str] = Counter()
    for node in nodes:
        counts.update(node["counts"])
    return {
        "flow": {**flow(found), "size": counts.total(), "counts": counts},
        "nodes": nodes,
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "otherwise": "continue" if link.continues else "cancel",
            }
            for link in shown.links
        ],
    }


def _node(node: Node, first: FlowStep) -> shapes.GraphNode:
    capabilities = {one.capability for one in node.steps}
    return {
        "layer": node.layer,
        "size": len(node.steps),
        "capability": first.job.capability if len(capabilities) == 1 else None,
        "counts": Counter(one.state for one in node.steps),
        "step": step(first),
    }


def _counts(steps: Sequence[shapes.Step]) -> dict[str, int]:
    return Counter(str(step["state"]) for step in steps)


def _new_step(step: NewStep) -> shapes.Step:
    job = step.job
    return {
        "id": job.id,
        "name": job.step or "",
        "capability": job.capability,
        "state": _first_state(step),
        "needs": [_need(edge) for edge in step.needs],
        "attempt": 0,
        "max_attempts": job.max_attempts,
        "progress": None,
        "error": None,
        "started_at": None,
        "finished_at": None,
    }


def step(found: FlowStep) -> shapes.Step:
    """Return a step of a flow as JSON."""
    job = found.job
    error: Any = job.error
    return {
        "id": job.id,
        "name": job.step or "",
        "capability": job.capability,
        "state": job.state,
        "needs": [_need(edge) for edge in found.needs],
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "progress": wire.raw(job.progress),
        "error": error,
        "started_at": wire.time(job.started_at),
        "finished_at": wire.time(job.finished_at),
    }


def _need(edge: Edge) -> shapes.Need:
    return {"step": edge.step, "otherwise": "continue" if edge.continues else "cancel"}


def new_batch(batch: NewBatch, members: Members) -> shapes.Batch:
    """Return a newly opened batch as JSON."""
    return {
        "id": batch.id,
        "user": batch.owner.user,
        "state": BatchState.OPEN,
        "generation": 0,
        "expected": batch.expected,
        "sealed": batch.sealed,
        "done": 0,
        "tags": list(batch.tags),
        "created_at": wire.time(batch.created_at),
        "finished_at": None,
        "request_id": batch.request_id,
        "links": _links(batch_location(batch.id), f"batch={batch.id}"),
        "counts": _first_counts(members),
        "added": added(members),
    }


def added(members: Members) -> shapes.Added:
    """Return the ids of the members that were added to a batch."""
    return {
        "jobs": [job.id for job in members.jobs],
        "flows": [flow.id for flow in members.flows],
    }


def _first_counts(members: Members) -> shapes.Counts:
    alone = Counter(str(first_state(job)) for job in members.jobs)
    steps = Counter(
        str(_first_state(step)) for flow in members.flows for step in flow.steps
    )
    flows = Counter({str(FlowState.RUNNING): len(members.flows)})
    return {
        "total": members.size,
        "done": 0,
        "members": alone + flows,
        "jobs": alone + steps,
    }


def _first_state(step: NewStep) -> JobState:
    return JobState.BLOCKED if step.needs else first_state(step.job)


def batch(found: Batch, counts: shapes.Counts | None = None) -> shapes.Batch:
    """Return a batch; without `counts`, only a finished one has counts."""
    if counts is None and found.counts is not None:
        counts = orjson.loads(found.counts)
    return {
        "id": found.id,
        "user": found.owner.user,
        "state": found.state,
        "generation": found.generation,
        "expected": found.expected,
        "sealed": found.sealed,
        "done": found.told if counts is None else counts["done"],
        "tags": list(found.tags),
        "created_at": wire.time(found.created_at),
        "finished_at": wire.time(found.finished_at),
        "request_id": found.request_id,
        "links": _links(batch_location(found.id), f"batch={found.id}"),
        "counts": counts,
    }


def _links(here: str, query: str) -> shapes.GroupLinks:
    return {
        "self": here,
        "jobs": f"/v1/jobs?{query}",
        "events": f"{here}/events",
        "cancel": f"{here}/cancel",
        "retry": f"{here}/retry",
    }
