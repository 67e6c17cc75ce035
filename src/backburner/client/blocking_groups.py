# Generated from asynchronous_groups.py by tools/sync-client: change that file instead.

"""The methods of the blocking client for flows and batches."""

from collections.abc import Iterator, Sequence
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


class Groups(Protocol):
    """The methods for flows and batches; the client executes the dialogues."""

    _ask: RequestPolicy

    def _run(self, dialogue: Dialogue[T]) -> T:
        """Execute a dialogue and return its result."""
        ...

    def _each(self, dialogue: Dialogue[Any]) -> Iterator[Any]:
        """Execute a dialogue and yield what it emits."""
        ...

    def submit_flow(
        self,
        steps: Sequence[NewStep],
        *,
        key: str | None = None,
        is_repeatable: bool = True,
        **options: Unpack[FlowOptions],
    ) -> "FlowTicket":
        """
        Submit dependent steps as a flow, all or none; durable when this returns.

        Idempotency and retries are those of `submit`.
        """
        chosen = key or (new_key() if is_repeatable else None)
        flow = self._run(say.submit_flow(self._ask, steps, chosen, options))
        return FlowTicket(self, flow)

    def flow(self, flow_id: str) -> "FlowTicket":
        """Return the ticket of a flow that was submitted before."""
        return FlowTicket(self, self.get_flow(flow_id))

    def get_flow(self, flow_id: str) -> Flow:
        """Return a flow with its steps."""
        return self._run(say.get_flow(self._ask, flow_id))

    def wait_flow(self, flow_id: str, *, timeout: float | None = None) -> Flow:
        """Return a flow once it has ended, or as it is after the timeout."""
        return self._run(say.follow_flow(self._ask, flow_id, timeout))

    def flow_results(
        self, flow_id: str, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Wait for the end; return the outputs of the succeeded steps by name."""
        return self._run(say.flow_results(self._ask, flow_id, timeout))

    def flow_events(self, flow_id: str) -> Iterator[Event]:
        """Yield all events of a flow and its steps, until the flow ends."""
        return self._each(say.flow_events(self._ask, flow_id))

    def cancel_flow(self, flow_id: str) -> Flow:
        """Cancel all of a flow that has not ended; repeating it is no error."""
        return self._run(say.cancel_flow(self._ask, flow_id))

    def retry_flow(self, flow_id: str) -> Flow:
        """Retry the failed steps of a flow; the flow resumes there."""
        return self._run(say.retry_flow(self._ask, flow_id))

    def flows(self, **which: Unpack[FlowsQuery]) -> Iterator[Flow]:
        """Yield flows without their steps, newest first, page by page."""
        return self._each(say.flows(self._ask, which))

    def open_batch(
        self,
        jobs: Sequence[NewJob] = (),
        flows: Sequence[NewFlow] = (),
        *,
        key: str | None = None,
        is_repeatable: bool = True,
        **options: Unpack[BatchOptions],
    ) -> "BatchTicket":
        """
        Submit jobs and flows as one batch, all or none; durable when this returns.

        Members can be added until there are `expected` ones or, with `sealed=False`,
        until the batch is sealed. Idempotency and retries are those of `submit`.
        """
        chosen = key or (new_key() if is_repeatable else None)
        opening = say.open_batch(self._ask, jobs, flows, chosen, options)
        return BatchTicket(self, self._run(opening))

    def batch(self, batch_id: str) -> "BatchTicket":
        """Return the ticket of a batch that was opened before."""
        return BatchTicket(self, self.get_batch(batch_id))

    def get_batch(self, batch_id: str) -> Batch:
        """Return a batch with its counts."""
        return self._run(say.get_batch(self._ask, batch_id))

    def fill_batch(
        self,
        batch_id: str,
        jobs: Sequence[NewJob] = (),
        flows: Sequence[NewFlow] = (),
        *,
        seal: bool = False,
    ) -> Batch:
        """Add members to a batch, all or none; with `seal` they are the last ones."""
        filling = say.fill_batch(self._ask, batch_id, jobs, flows, seal=seal)
        return self._run(filling)

    def wait_batch(self, batch_id: str, *, timeout: float | None = None) -> Batch:
        """Return a batch once it is finished, or as it is after the timeout."""
        return self._run(say.follow_batch(self._ask, batch_id, timeout))

    def batch_events(self, batch_id: str) -> Iterator[Event]:
        """Yield the events of a batch as a whole, until it is finished."""
        return self._each(say.batch_events(self._ask, batch_id))

    def cancel_batch(self, batch_id: str) -> Batch:
        """Cancel all of a batch that has not ended, and seal the batch."""
        return self._run(say.cancel_batch(self._ask, batch_id))

    def retry_batch(self, batch_id: str) -> Batch:
        """Retry the failed jobs of a batch; `retried` is their number."""
        return self._run(say.retry_batch(self._ask, batch_id))

    def batches(self, **which: Unpack[BatchesQuery]) -> Iterator[Batch]:
        """Yield batches, newest first, page by page."""
        return self._each(say.batches(self._ask, which))


class FlowTicket:
    """A submitted flow, with its last known data."""

    def __init__(self, client: Groups, flow: Flow) -> None:
        self._client = client
        self.flow = flow

    def __repr__(self) -> str:
        return f"FlowTicket({self.id!r})"

    @property
    def id(self) -> str:
        """The flow's id."""
        return self.flow["id"]

    @property
    def state(self) -> str:
        """The last known state of the flow."""
        return self.flow["state"]

    @property
    def steps(self) -> dict[str, Step]:
        """The last known data of its steps, by name."""
        return {step["name"]: step for step in self.flow.get("steps", ())}

    def refresh(self) -> Flow:
        """Fetch the current data of the flow."""
        self.flow = self._client.get_flow(self.id)
        return self.flow

    def wait(self, timeout: float | None = None) -> Flow:
        """Return the flow once it has ended, or as it is after the timeout."""
        self.flow = self._client.wait_flow(self.id, timeout=timeout)
        return self.flow

    def results(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the end; return the outputs of the succeeded steps by name."""
        self.wait(timeout)
        return self._client.flow_results(self.id, timeout=0)

    def stream(self) -> Iterator[Event]:
        """Yield all events of the flow and its steps, until the flow ends."""
        return self._client.flow_events(self.id)

    def cancel(self) -> Flow:
        """Cancel all of the flow that has not ended; repeating it is no error."""
        self.flow = self._client.cancel_flow(self.id)
        return self.flow

    def retry(self) -> Flow:
        """Retry its failed steps; the flow resumes there."""
        self.flow = self._client.retry_flow(self.id)
        return self.flow


class BatchTicket:
    """A submitted batch, with its last known data."""

    def __init__(self, client: Groups, batch: Batch) -> None:
        self._client = client
        self.batch = batch

    def __repr__(self) -> str:
        return f"BatchTicket({self.id!r})"

    @property
    def id(self) -> str:
        """The batch's id."""
        return self.batch["id"]

    @property
    def state(self) -> str:
        """The last known state of the batch."""
        return self.batch["state"]

    @property
    def counts(self) -> Counts | None:
        """The last known number of its members by state."""
        return self.batch["counts"]

    def add(
        self,
        jobs: Sequence[NewJob] = (),
        flows: Sequence[NewFlow] = (),
        *,
        seal: bool = False,
    ) -> Batch:
        """Add members to the batch, all or none; with `seal` they are the last ones."""
        self.batch = self._client.fill_batch(self.id, jobs, flows, seal=seal)
        return self.batch

    def refresh(self) -> Batch:
        """Fetch the current data of the batch."""
        self.batch = self._client.get_batch(self.id)
        return self.batch

    def wait(self, timeout: float | None = None) -> Batch:
        """Return the batch once it is finished, or as it is after the timeout."""
        self.batch = self._client.wait_batch(self.id, timeout=timeout)
        return self.batch

    def stream(self) -> Iterator[Event]:
        """Yield the events of the batch as a whole, until it is finished."""
        return self._client.batch_events(self.id)

    def cancel(self) -> Batch:
        """Cancel all of the batch that has not ended, and seal the batch."""
        self.batch = self._client.cancel_batch(self.id)
        return self.batch

    def retry(self) -> Batch:
        """Retry the failed jobs of the batch; `retried` is their number."""
        self.batch = self._client.retry_batch(self.id)
        return self.batch
