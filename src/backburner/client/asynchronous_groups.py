"""Flows and batches for the client that is awaited."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, TypeVar, Unpack

from backburner.client import group_dialogue as say
from backburner.client.dialogue import Dialogue, RequestPolicy, new_key
from backburner.client.group_options import (
    BatchesQuery,
    BatchOptions,
    FlowOptions,
    FlowsQuery,
    NewFlow,
    NewJob,
    NewStep,
)
from backburner.shapes.groups import Batch, Counts, Flow, Step
from backburner.shapes.jobs import Event

T = TypeVar("T")


class AsyncGroups(Protocol):
    """The verbs of flows and batches, for whoever carries dialogues out."""

    _ask: RequestPolicy

    async def _run(self, dialogue: Dialogue[T]) -> T:
        """Carry a dialogue out and return what comes of it."""
        ...

    def _each(self, dialogue: Dialogue[Any]) -> AsyncIterator[Any]:
        """Carry a dialogue out and yield what it tells."""
        ...

    async def submit_flow(
        self,
        steps: Sequence[NewStep],
        *,
        key: str | None = None,
        is_repeatable: bool = True,
        **options: Unpack[FlowOptions],
    ) -> "AsyncFlowTicket":
        """
        Submit steps that wait for each other, all or none, durable when this returns.

        Its idempotency key is as that of `submit`.
        """
        chosen = key or (new_key() if is_repeatable else None)
        flow = await self._run(say.submit_flow(self._ask, steps, chosen, options))
        return AsyncFlowTicket(self, flow)

    async def flow(self, flow_id: str) -> "AsyncFlowTicket":
        """Return the ticket of a flow that was submitted before."""
        return AsyncFlowTicket(self, await self.get_flow(flow_id))

    async def get_flow(self, flow_id: str) -> Flow:
        """Return a flow with its steps."""
        return await self._run(say.get_flow(self._ask, flow_id))

    async def wait_flow(self, flow_id: str, *, timeout: float | None = None) -> Flow:
        """Return a flow once it has ended, or as it is after the timeout."""
        return await self._run(say.follow_flow(self._ask, flow_id, timeout))

    async def flow_results(
        self, flow_id: str, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Wait for the end; return the outputs of the steps that succeeded, by name."""
        return await self._run(say.flow_results(self._ask, flow_id, timeout))

    def flow_events(self, flow_id: str) -> AsyncIterator[Event]:
        """Yield what happened and happens to a flow and its steps, to its end."""
        return self._each(say.flow_events(self._ask, flow_id))

    async def cancel_flow(self, flow_id: str) -> Flow:
        """End whatever of a flow is not over; asking twice is no error."""
        return await self._run(say.cancel_flow(self._ask, flow_id))

    async def retry_flow(self, flow_id: str) -> Flow:
        """Retry the failed steps of a flow; the flow resumes there."""
        return await self._run(say.retry_flow(self._ask, flow_id))

    def flows(self, **which: Unpack[FlowsQuery]) -> AsyncIterator[Flow]:
        """Yield flows without their steps, newest first, page by page."""
        return self._each(say.flows(self._ask, which))

    async def open_batch(
        self,
        jobs: Sequence[NewJob] = (),
        flows: Sequence[NewFlow] = (),
        *,
        key: str | None = None,
        is_repeatable: bool = True,
        **options: Unpack[BatchOptions],
    ) -> "AsyncBatchTicket":
        """
        Put jobs and flows under one id, all or none, durable when this returns.

        With `expected` more may be added until it has so many, with `sealed=False`
        until it is sealed. Its idempotency key is as that of `submit`.
        """
        chosen = key or (new_key() if is_repeatable else None)
        asked = say.open_batch(self._ask, jobs, flows, chosen, options)
        return AsyncBatchTicket(self, await self._run(asked))

    async def batch(self, batch_id: str) -> "AsyncBatchTicket":
        """Return the ticket of a batch that was opened before."""
        return AsyncBatchTicket(self, await self.get_batch(batch_id))

    async def get_batch(self, batch_id: str) -> Batch:
        """Return a batch with its counts."""
        return await self._run(say.get_batch(self._ask, batch_id))

    async def fill_batch(
        self,
        batch_id: str,
        jobs: Sequence[NewJob] = (),
        flows: Sequence[NewFlow] = (),
        *,
        seal: bool = False,
    ) -> Batch:
        """Add to a batch, all or none; with `seal` they are the last."""
        asked = say.fill_batch(self._ask, batch_id, jobs, flows, seal=seal)
        return await self._run(asked)

    async def wait_batch(self, batch_id: str, *, timeout: float | None = None) -> Batch:
        """Return a batch once it is finished, or as it is after the timeout."""
        return await self._run(say.follow_batch(self._ask, batch_id, timeout))

    def batch_events(self, batch_id: str) -> AsyncIterator[Event]:
        """Yield what happened and happens to a batch as a whole, to its end."""
        return self._each(say.batch_events(self._ask, batch_id))

    async def cancel_batch(self, batch_id: str) -> Batch:
        """End whatever of a batch is not over, and let nothing more come."""
        return await self._run(say.cancel_batch(self._ask, batch_id))

    async def retry_batch(self, batch_id: str) -> Batch:
        """Retry whatever of a batch failed; `retried` says how many jobs."""
        return await self._run(say.retry_batch(self._ask, batch_id))

    def batches(self, **which: Unpack[BatchesQuery]) -> AsyncIterator[Batch]:
        """Yield batches, newest first, page by page."""
        return self._each(say.batches(self._ask, which))


class AsyncFlowTicket:
    """A flow that was accepted, and the flow as it was last seen."""

    def __init__(self, client: AsyncGroups, flow: Flow) -> None:
        self._client = client
        self.flow = flow

    def __repr__(self) -> str:
        return f"AsyncFlowTicket({self.id!r})"

    @property
    def id(self) -> str:
        """The flow's id."""
        return self.flow["id"]

    @property
    def state(self) -> str:
        """Where the flow stood when it was last seen."""
        return self.flow["state"]

    @property
    def steps(self) -> dict[str, Step]:
        """Its steps by name, as they were last seen."""
        return {step["name"]: step for step in self.flow.get("steps", ())}

    async def refresh(self) -> Flow:
        """Look again."""
        self.flow = await self._client.get_flow(self.id)
        return self.flow

    async def wait(self, timeout: float | None = None) -> Flow:
        """Return the flow once it has ended, or as it is after the timeout."""
        self.flow = await self._client.wait_flow(self.id, timeout=timeout)
        return self.flow

    async def results(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the end; return the outputs of the steps that succeeded, by name."""
        await self.wait(timeout)
        return await self._client.flow_results(self.id, timeout=0)

    def stream(self) -> AsyncIterator[Event]:
        """Yield what happened and happens to the flow and its steps, to its end."""
        return self._client.flow_events(self.id)

    async def cancel(self) -> Flow:
        """End whatever of the flow is not over; asking twice is no error."""
        self.flow = await self._client.cancel_flow(self.id)
        return self.flow

    async def retry(self) -> Flow:
        """Retry its failed steps; the flow goes on from there."""
        self.flow = await self._client.retry_flow(self.id)
        return self.flow


class AsyncBatchTicket:
    """A batch that was accepted, and the batch as it was last seen."""

    def __init__(self, client: AsyncGroups, batch: Batch) -> None:
        self._client = client
        self.batch = batch

    def __repr__(self) -> str:
        return f"AsyncBatchTicket({self.id!r})"

    @property
    def id(self) -> str:
        """The batch's id."""
        return self.batch["id"]

    @property
    def state(self) -> str:
        """Where the batch stood when it was last seen."""
        return self.batch["state"]

    @property
    def counts(self) -> Counts | None:
        """Its members by state, as they were last seen."""
        return self.batch["counts"]

    async def add(
        self,
        jobs: Sequence[NewJob] = (),
        flows: Sequence[NewFlow] = (),
        *,
        seal: bool = False,
    ) -> Batch:
        """Put more into the batch, all or none; with `seal` they are the last."""
        self.batch = await self._client.fill_batch(self.id, jobs, flows, seal=seal)
        return self.batch

    async def refresh(self) -> Batch:
        """Look again."""
        self.batch = await self._client.get_batch(self.id)
        return self.batch

    async def wait(self, timeout: float | None = None) -> Batch:
        """Return the batch once it is finished, or as it is after the timeout."""
        self.batch = await self._client.wait_batch(self.id, timeout=timeout)
        return self.batch

    def stream(self) -> AsyncIterator[Event]:
        """Yield what happened and happens to the batch as a whole, to its end."""
        return self._client.batch_events(self.id)

    async def cancel(self) -> Batch:
        """End whatever of the batch is not over, and let nothing more come."""
        self.batch = await self._client.cancel_batch(self.id)
        return self.batch

    async def retry(self) -> Batch:
        """Retry whatever of the batch failed; `retried` says how many jobs."""
        self.batch = await self._client.retry_batch(self.id)
        return self.batch
