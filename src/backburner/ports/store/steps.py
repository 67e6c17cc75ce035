"""The results of steps within handlers, stored so that no run computes them again."""

from collections.abc import Sequence
from typing import Protocol

from backburner.domain.costs.usage import Booking
from backburner.domain.jobs.job import NewJob, Submitted
from backburner.domain.jobs.step import StepResult, StoredStep


class StepStore(Protocol):
    """Stores the results of steps, each with its job."""

    async def save_steps(
        self, results: Sequence[StepResult], bookings: Sequence[Booking] = ()
    ) -> Sequence[bool]:
        """
        Store results, each if its job still runs under its token; durable.

        Returns for each result whether its job does. A key that is stored keeps its
        first result, so repeating a call is safe. One that `is_open` and empty says
        that a step begins; the result that follows takes its place. A step that an
        earlier run began is counted as in doubt. The usage in `bookings` is recorded
        in the same transaction, also if the job is lost.
        """
        ...

    async def steps_of(
        self, job: int, *, most: int | None = None
    ) -> Sequence[StoredStep]:
        """
        Return the stored results of a job, the oldest first.

        Those of more than `most` characters come without their result.
        """
        ...

    async def forget_step(self, job: int, token: str, key: str) -> bool:
        """Delete a result, if its job runs under the token; tell whether it does."""
        ...

    async def submit_fork(
        self, job: NewJob, results: Sequence[StepResult], event: str
    ) -> Submitted:
        """
        Store a job with results that its handler is to use; all of it or nothing.

        `event` is the data of its `job.forked`. The jobs and tokens of the results
        are not looked at.
        """
        ...

    async def withdraw_step(self, job: int, token: str, key: str) -> bool:
        """Note that a step that was begun did not happen; tell as `forget_step`."""
        ...

    async def forget_steps(self, job: int, generation: int) -> int:
        """Delete all results of a job that has ended in this generation."""
        ...
