"""Flows: stored, found, cancelled and retried."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.groups.flow import Edge, FlowRecord, NewFlow
from backburner.domain.groups.graph import OutlinedStep
from backburner.domain.jobs.job import Job, Submitted, Visibility
from backburner.domain.jobs.transitions import Change
from backburner.ports.store.jobs import Move
from backburner.ports.store.keys import AuditEntry


class GroupFilter(NamedTuple):
    """Selects flows or batches of an owner."""

    owner: Visibility
    state: str | None = None
    tag: str | None = None
    batch: int | None = None
    """Flows that are members of this batch."""


class FlowStep(NamedTuple):
    """A step of a flow: its job, without input and output, and its prerequisites."""

    job: Job
    needs: Sequence[Edge]

    @property
    def seq(self) -> int:
        """Its position among the steps of the flow."""
        return self.job.seq


class FlowStore(Protocol):
    """Flows: jobs that depend on other jobs."""

    async def submit_flows(self, flows: Sequence[NewFlow]) -> Sequence[Submitted]:
        """Store flows with their steps, durably; all or none, as `submit` does."""
        ...

    async def find_flows(self, ids: Sequence[str]) -> Sequence[FlowRecord]:
        """Return the flows that exist, in any order."""
        ...

    async def flows(
        self, where: GroupFilter, *, before: int | None, limit: int
    ) -> Sequence[FlowRecord]:
        """Return flows, newest first, with `seq` below `before`."""
        ...

    async def steps(self, flow: int) -> Sequence[FlowStep]:
        """Return a flow's steps, each after its prerequisites."""
        ...

    async def outline(self, flow: int, *, needs: bool) -> Sequence[OutlinedStep]:
        """Return the same steps in short; with `needs`, also what each one needs."""
        ...

    async def some_steps(self, flow: int, seqs: Sequence[int]) -> Sequence[FlowStep]:
        """Return those of a flow's steps that have these numbers, in order."""
        ...

    async def reopen(
        self,
        moves: Sequence[Move],
        *,
        fresh: bool = False,
        entries: Sequence[AuditEntry] = (),
    ) -> Sequence[bool]:
        """
        Retry failed jobs of flows and batches, durably; return which applied.

        Steps that were cancelled because of them wait again, and finished flows and
        batches reopen in their next generation. `fresh` deletes the stored results and
        the signals of the retried jobs in the same transaction; jobs that are not
        retried keep theirs. If any job is retried, `entries` are added to the audit log
        in the same transaction.
        """
        ...

    async def cancel_flow(self, flow: int, change: Change) -> int:
        """Cancel the unfinished steps of a flow, durably; return how many."""
        ...
