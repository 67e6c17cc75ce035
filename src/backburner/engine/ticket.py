"""What `submit` gives back: the way to a job's result."""

from collections.abc import AsyncIterator
from typing import Any

from backburner.domain.blob import reference
from backburner.domain.errors import BlobMissing, WorkError
from backburner.domain.event import Event
from backburner.domain.job import Job, JobState, Submitted
from backburner.engine.engine import Engine, as_value


class JobFailed(WorkError):
    """The job ended without a result; `job` says why."""

    code = "JOB_FAILED"

    def __init__(self, job: Job) -> None:
        reason = f": {job.error.code}, {job.error.message}" if job.error else ""
        super().__init__(f"job {job.id} is {job.state}{reason}")
        self.job = job


class Ticket:
    """A job that was accepted."""

    __slots__ = ("_engine", "id", "replayed")

    def __init__(self, submitted: Submitted, engine: Engine) -> None:
        self.id = submitted.id
        self.replayed = submitted.replayed
        self._engine = engine

    def __repr__(self) -> str:
        return f"Ticket({self.id!r})"

    async def job(self) -> Job:
        """Return the job as it is now."""
        return await self._engine.payloads.whole(await self._row())

    async def wait(self, timeout: float = 60.0) -> Job:  # noqa: ASYNC109 - a wait, not a failure
        """Return the job when it ends, or as it is when the time is over."""
        job = await self._row()
        job = await self._engine.wait(self.id, job.owner, timeout=timeout)
        return await self._engine.payloads.whole(job)

    async def result(self, timeout: float = 60.0) -> Any:  # noqa: ASYNC109 - same
        """Return the output as plain data; `JobFailed` if there is none."""
        job = await self.wait(timeout)
        if job.state is JobState.SUCCEEDED:
            if (named := reference(job.output)) is not None:
                raise BlobMissing(
                    f"the output of job {self.id} is gone: {named.key.id}"
                )
            return as_value(job.output)
        if job.state.is_final:
            raise JobFailed(job)
        raise TimeoutError(
            f"job {self.id} is {job.state} after {timeout:g} s; it goes on"
        )

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Yield what happens to the job, from the beginning, until it ends."""
        async for event in self._engine.events(await self._row(), after=after):
            yield event

    async def cancel(self) -> Job:
        """End the job now."""
        job = await self._engine.cancel(self.id, (await self._row()).owner)
        return await self._engine.payloads.whole(job)

    async def _row(self) -> Job:
        return (await self._engine.store.find([self.id]))[0]
