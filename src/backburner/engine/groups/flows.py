"""Submits, finds, cancels, retries and follows flows."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from backburner.domain.errors import FlowNotFound, IllegalTransition
from backburner.domain.events.event import Event
from backburner.domain.groups.batch import Members, replaced
from backburner.domain.groups.flow import (
    FlowRecord,
    FlowState,
    NewFlow,
    NewStep,
    in_order,
)
from backburner.domain.groups.graph import DrawnGraph, Graph, drawn
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim, Submitted, Visibility
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.flow import Flow, Planned
from backburner.engine.groups.planning import Planning
from backburner.engine.groups.retrying import retry_failed
from backburner.engine.observability import telemetry
from backburner.engine.run.services import inherited
from backburner.engine.submit.auditing import audited
from backburner.engine.submit.budgets import counted
from backburner.engine.submit.submission import (
    LOCAL,
    GroupOptions,
    Submission,
    refused_field,
)
from backburner.engine.watch import Watch
from backburner.ports.clock import Clock
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.store import Store
from backburner.ports.store.events import Topic
from backburner.ports.store.flows import FlowStep, GroupFilter
from backburner.ports.store.keys import AuditEntry

MOST_GRAPHS: Final = 20
"""The graphs of so many flows are kept in memory."""


class StepFilter(NamedTuple):
    """Which steps of a flow to list."""

    state: str | None = None
    node: int | None = None
    """Those of a node of its graph."""


class Flows:
    """Flows: jobs that depend on other jobs."""

    def __init__(  # noqa: PLR0913 - one argument per collaborator
        self,
        *,
        store: Store,
        notifier: Notifier,
        clock: Clock,
        submission: Submission,
        watch: Watch,
        payloads: Payloads,
        touch: Callable[[Iterable[int]], None],
    ) -> None:
        """Use `touch` to report batches in which a member has ended."""
        self._store = store
        self._notifier = notifier
        self._clock = clock
        self._planning = Planning(submission)
        self._watch = watch
        self._payloads = payloads
        self._touch = touch
        self._graphs: dict[int, DrawnGraph] = {}

    async def submit(
        self, wanted: Sequence[tuple[Flow, GroupOptions]]
    ) -> Sequence[Submitted]:
        """Store flows, all or none. When this returns, they are durable."""
        return await self.store([self.prepare(*asked) for asked in wanted])

    def prepare(self, flow: Flow, options: GroupOptions) -> NewFlow:
        """Validate a whole flow and prepare its rows; nothing is stored yet."""
        return self._planning.flow(flow, options)

    async def store(
        self, flows: Sequence[NewFlow], entries: Sequence[AuditEntry] = ()
    ) -> Sequence[Submitted]:
        """
        Store prepared flows and notify workers.

        Unless all of them are repeats, `entries` are added to the audit log with them.
        """
        stowed = await self._payloads.stow_members(Members(flows=flows))
        async with self._payloads.dropped_if_refused(stowed):
            with counted():
                submitted = await self._put(stowed.flows, entries)
        await self._payloads.drop_inputs(replaced(stowed, submitted))
        for flow, answer in zip(flows, submitted, strict=True):
            if not answer.replayed:
                for step in flow.steps:
                    telemetry.jobs_submitted.labels(step.job.capability).inc()
        self._notifier.notify(
            Notification.WORK | Notification.SCHEDULE | Notification.EVENTS
        )
        return submitted

    async def _put(
        self, flows: Sequence[NewFlow], entries: Sequence[AuditEntry]
    ) -> Sequence[Submitted]:
        if not entries:
            return await self._store.submit_flows(flows)
        body = audited(lambda tx: tx.submit_flows(flows), entries)
        return await self._store.transact(body)

    def plan(self, added: Sequence[Planned], parent: Claim) -> Sequence[NewStep]:
        """Validate steps that a handler adds to its own flow."""
        named = {planned.name: planned for planned in added}
        order = in_order(
            {
                name: [edge for edge in planned.needs if edge.step in named]
                for name, planned in named.items()
            }
        )
        options = GroupOptions(**inherited(parent))
        steps = [self._planning.step(named[name], options) for name in order]
        for step in steps:
            step.job.batch = parent.batch
            times = [t for t in (step.job.deadline, parent.deadline) if t is not None]
            step.job.deadline = min(times, default=None)
        return [
            NewStep(self._payloads.stow_input(s.job), s.needs, s.before) for s in steps
        ]

    async def find(self, flow_id: str, owner: Visibility = LOCAL) -> FlowRecord:
        """Return an owner's flow."""
        found = await self._store.find_flows([flow_id])
        if not found or not owner.covers(found[0].owner):
            raise FlowNotFound(f"flow {flow_id[:60]!r} does not exist")
        return found[0]

    async def steps(self, flow: FlowRecord) -> Sequence[FlowStep]:
        """Return a flow's steps, each after its prerequisites."""
        return await self._store.steps(flow.seq)

    async def graph(self, flow: FlowRecord) -> tuple[Graph, Sequence[FlowStep]]:
        """Return a flow's graph, and the first step of each of its nodes."""
        graph = await self._drawn(flow)
        firsts = [node.steps[0].seq for node in graph.nodes]
        found = await self._store.some_steps(flow.seq, firsts)
        # A step of a flow is deleted with the flow only: then nothing is left to show.
        known = {step.seq: step for step in found}
        if len(known) < len(firsts):
            raise FlowNotFound(f"flow {flow.id} does not exist any more")
        return graph, [known[seq] for seq in firsts]

    async def some_steps(
        self, flow: FlowRecord, which: StepFilter, *, after: int | None, limit: int
    ) -> Sequence[FlowStep]:
        """Return a page of a flow's steps, in their order."""
        if which.node is None:
            outline = await self._store.outline(flow.seq, needs=False)
        else:
            nodes = (await self._drawn(flow)).nodes
            if which.node >= len(nodes):
                raise refused_field("query.node", "is not a node of the flow's graph")
            outline = nodes[which.node].steps
        chosen = [
            step.seq
            for step in outline
            if which.state in {None, step.state} and step.seq > (after or 0)
        ]
        return await self._store.some_steps(flow.seq, sorted(chosen)[:limit])

    async def _drawn(self, flow: FlowRecord) -> Graph:
        """Return a flow's graph; it is drawn anew only if steps were added."""
        if (known := self._graphs.get(flow.seq)) is not None:
            outline = await self._store.outline(flow.seq, needs=False)
            if known.shows(outline):
                return known.of(outline)
        outline = await self._store.outline(flow.seq, needs=True)
        graph = await asyncio.to_thread(drawn, outline)
        self._graphs[flow.seq] = DrawnGraph(graph)
        if len(self._graphs) > MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        return graph

    async def list(
        self, where: GroupFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[FlowRecord]:
        """Return a page of flows, newest first."""
        return await self._store.flows(where, before=before, limit=limit)

    async def cancel(
        self,
        flow_id: str,
        owner: Visibility = LOCAL,
        *,
        reason: str = "flow cancelled",
    ) -> FlowRecord:
        """Cancel every step of a flow that has not ended; repeating it is no error."""
        flow = await self.find(flow_id, owner)
        if flow.state is FlowState.CANCELLED:
            return flow
        if flow.state.is_final:
            raise IllegalTransition(
                f"flow {flow_id} is {flow.state}: it cannot be cancelled"
            )
        change = transitions.cancel_all(reason, now=self._clock.now())
        await self._store.cancel_flow(flow.seq, change)
        self._notifier.notify(
            Notification.WORK | Notification.EVENTS | Notification.CANCELLED
        )
        if flow.batch is not None:
            self._touch([flow.batch])
        return await self.find(flow_id, owner)

    async def retry(
        self,
        flow_id: str,
        owner: Visibility = LOCAL,
        entries: Sequence[AuditEntry] = (),
    ) -> FlowRecord:
        """
        Retry the failed steps of a flow; the flow resumes there.

        `entries` are added to the audit log with the first of them.
        """
        flow = await self.find(flow_id, owner)
        retried = await retry_failed(
            self._store, now=self._clock.now(), flow=flow.seq, entries=entries
        )
        if not retried:
            raise IllegalTransition(f"flow {flow_id} has no failed step to retry")
        telemetry.redrive_jobs.inc(retried)
        self._notifier.notify(Notification.WORK | Notification.EVENTS)
        return await self.find(flow_id, owner)

    def events(
        self, flow: FlowRecord, *, after: int = 0
    ) -> AsyncGenerator[Event, None]:
        """Yield events of a flow and its steps after `after`, until it ends."""
        topic, over = Topic(flow=flow.seq), partial(self.last, flow)
        return self._watch.group(flow.owner, topic, over, after=after)

    async def last(self, flow: FlowRecord) -> int | None:
        """Return the number of a flow's last event; `None` while it runs."""
        found = await self._store.find_flows([flow.id])
        if found and not found[0].state.is_final:
            return None
        last = await self._store.last_of(Topic(flow=flow.seq))
        # If it was reopened in between, that was its last event for now.
        return last if found == await self._store.find_flows([flow.id]) else None

    async def wait(
        self,
        flow_id: str,
        owner: Visibility = LOCAL,
        *,
        timeout: float,  # noqa: ASYNC109 - part of the answer
    ) -> FlowRecord:
        """Return a flow once it has ended, or as it is after the timeout."""
        flow = await self.find(flow_id, owner)
        if flow.state.is_final or timeout <= 0:
            return flow
        await self._watch.end(flow.id, seconds=timeout)
        return await self.find(flow_id, owner)
