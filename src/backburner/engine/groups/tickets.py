"""The tickets that `submit_flow` and `open_batch` return."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from backburner.domain.events.event import Event
from backburner.domain.groups.batch import Batch
from backburner.domain.groups.flow import FlowRecord
from backburner.domain.jobs.job import Job, JobState, Submitted
from backburner.engine.engine import Engine, as_value
from backburner.engine.flow import Flow
from backburner.engine.submit.submission import GroupOptions


class Results(dict[str, Any]):
    """The outputs of succeeded steps by name; the error for another one says why."""

    def __init__(self, steps: Mapping[str, Job]) -> None:
        super().__init__(
            (name, as_value(job.output))
            for name, job in steps.items()
            if job.state is JobState.SUCCEEDED
        )
        self._steps = steps

    def __missing__(self, name: str) -> Any:
        """Raise the error for a step without an output, and its reason."""
        job = self._steps.get(name)
        if job is None:
            raise KeyError(name)
        reason = f": {job.error.code}, {job.error.message}" if job.error else ""
        raise KeyError(f"step {name!r} {job.state}{reason}")


class FlowTicket:
    """A flow that was accepted."""

    __slots__ = ("_engine", "id", "replayed")

    def __init__(self, submitted: Submitted, engine: Engine) -> None:
        self.id = submitted.id
        self.replayed = submitted.replayed
        self._engine = engine

    def __repr__(self) -> str:
        return f"FlowTicket({self.id!r})"

    async def flow(self) -> FlowRecord:
        """Return the flow as it is now."""
        return (await self._engine.store.find_flows([self.id]))[0]

    async def steps(self) -> dict[str, Job]:
        """Return the jobs of the flow's steps by name, with inputs and outputs."""
        found = await self._engine.flows.steps(await self.flow())
        rows = await self._engine.store.find([step.job.id for step in found])
        whole = {job.id: await self._engine.payloads.whole(job) for job in rows}
        return {step.job.step or "": whole[step.job.id] for step in found}

    async def wait(self, timeout: float = 60.0) -> FlowRecord:  # noqa: ASYNC109 - a wait, not a failure
        """Return the flow once it has ended, or as it is after the timeout."""
        owner = (await self.flow()).owner
        return await self._engine.flows.wait(self.id, owner, timeout=timeout)

    async def results(self, timeout: float = 60.0) -> dict[str, Any]:  # noqa: ASYNC109 - same
        """Wait for the end; return the outputs of the steps that succeeded, by name."""
        flow = await self.wait(timeout)
        if not flow.state.is_final:
            raise TimeoutError(
                f"flow {self.id} is {flow.state} after {timeout:g} s; it continues"
            )
        return Results(await self.steps())

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events of the flow and its steps until it ends."""
        flow = await self.flow()
        async for event in self._engine.flows.events(flow, after=after):
            yield event

    async def cancel(self) -> FlowRecord:
        """Cancel every step that has not ended."""
        return await self._engine.flows.cancel(self.id, (await self.flow()).owner)

    async def retry(self) -> FlowRecord:
        """Retry the failed steps; the flow resumes there."""
        return await self._engine.flows.retry(self.id, (await self.flow()).owner)


class BatchTicket:
    """A batch that was accepted."""

    __slots__ = ("_engine", "_options", "id", "replayed")

    def __init__(
        self, submitted: Submitted, engine: Engine, options: GroupOptions
    ) -> None:
        self.id = submitted.id
        self.replayed = submitted.replayed
        self._engine = engine
        self._options = options

    def __repr__(self) -> str:
        return f"BatchTicket({self.id!r})"

    async def batch(self) -> Batch:
        """Return the batch as it is now."""
        return (await self._engine.store.find_batches([self.id]))[0]

    async def counts(self) -> dict[str, Any]:
        """Count the members by state."""
        return await self._engine.batches.counts(await self.batch())

    async def add(
        self,
        jobs: Iterable[tuple[Any, Any]] = (),
        flows: Iterable[Flow] = (),
        *,
        seal: bool = False,
    ) -> None:
        """Add members to the batch; with `seal` no more can be added later."""
        members = self._engine.batches.gather(jobs, flows, self._options)
        owner = (await self.batch()).owner
        await self._engine.batches.fill(self.id, owner, members, seal=seal)

    async def wait(self, timeout: float = 60.0) -> Batch:  # noqa: ASYNC109 - a wait, not a failure
        """Return the batch once it is finished, or as it is after the timeout."""
        owner = (await self.batch()).owner
        return await self._engine.batches.wait(self.id, owner, timeout=timeout)

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events of the batch itself until it is finished."""
        batch = await self.batch()
        async for event in self._engine.batches.events(batch, after=after):
            yield event

    async def cancel(self) -> Batch:
        """Cancel every member that has not ended."""
        return await self._engine.batches.cancel(self.id, (await self.batch()).owner)

    async def retry(self) -> int:
        """Retry the failed members; return how many jobs were retried."""
        return await self._engine.batches.retry(self.id, (await self.batch()).owner)
