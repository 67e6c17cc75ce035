"""The results of steps within handlers, stored so that no run computes them again."""

from collections.abc import Sequence
from typing import Protocol

from backburner.domain.costs.usage import RunUsage
from backburner.domain.jobs.job import NewJob, Submitted
from backburner.domain.jobs.step import StepResult, StoredStep
from backburner.ports.store.keys import AuditEntry


class StepStore(Protocol):
    """Stores the results of steps, each with its job."""

    async def save_steps(
        self, results: Sequence[StepResult], bookings: Sequence[RunUsage] = ()
    ) -> Sequence[bool]:
        """
        Store results, each if its job still runs under its token; durable.

        Returns for each result whether its job does. A stored key keeps its first
        result, so repeating a call is safe. A result that `is_open` and empty records
        that a step begins; the following result replaces it. A step that an earlier run
        began is counted as in doubt. The usage in `bookings` is recorded in the same
        transaction, even if the job is lost.
        """
        ...

    async def steps_of(
        self, job: int, *, most: int | None = None
    ) -> Sequence[StoredStep]:
        """
        Return the stored results of a job, oldest first.

        Results of more than `most` characters are omitted.
        """
        ...

    async def forget_step(self, job: int, token: str, key: str) -> bool:
        """Delete a result if its job runs under the token; return whether it does."""
        ...

    async def submit_fork(
        self,
        job: NewJob,
        results: Sequence[StepResult],
        event: str,
        entries: Sequence[AuditEntry] = (),
    ) -> Submitted:
        """
        Store a job with results for its handler; all or nothing.

        `event` is the data of its `job.forked`. The jobs and tokens in the results are
        ignored. `entries` are added to the audit log in the same transaction.
        """
        ...

    async def withdraw_step(self, job: int, token: str, key: str) -> bool:
        """
        Record that a step that had begun did not happen.

        Returns the same as `forget_step`.
        """
        ...
