"""The ticket that `submit` returns: access to a job's result."""

from collections.abc import AsyncIterator
from typing import Generic, Protocol, TypeVar, cast

import orjson
from pydantic import TypeAdapter, ValidationError

from backburner.domain.blobs.blob import reference
from backburner.domain.errors import BlobMissing, JobNotFound, WorkError
from backburner.domain.events.event import Event
from backburner.domain.events.text import Piece, Text
from backburner.domain.jobs.job import Job, JobState, Owner, Submitted
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.unserved import UNSERVED_SECONDS, UnservedQueues
from backburner.ports.store import Store

Out = TypeVar("Out")


class JobFailed(WorkError):
    """The job ended without a result; `job` says why."""

    code = "JOB_FAILED"

    def __init__(self, job: Job) -> None:
        reason = f": {job.error.code}, {job.error.message}" if job.error else ""
        super().__init__(f"job {job.id} {job.state}{reason}")
        self.job = job


class ResultMismatch(WorkError):
    """The job succeeded, but its stored output does not match the declared type."""

    code = "RESULT_MISMATCH"


class Jobs(Protocol):
    """The part of the engine that a ticket uses."""

    store: Store
    payloads: Payloads

    async def wait(
        self,
        job_id: str,
        owner: Owner,
        *,
        timeout: float,  # noqa: ASYNC109 - a wait, not a failure
    ) -> Job:
        """Return the job once it has ended, or as it is after the timeout."""
        ...

    def events(self, job: Job, *, after: int = 0) -> AsyncIterator[Event]:
        """Yield a job's events after number `after`, until it ends."""
        ...

    async def cancel(self, job_id: str, owner: Owner) -> Job:
        """Cancel a job."""
        ...


class Ticket(Generic[Out]):
    """A job that was accepted; `Out` is the type of its result."""

    __slots__ = ("_engine", "_output", "_unserved", "id", "replayed")

    def __init__(
        self,
        submitted: Submitted,
        engine: Jobs,
        output: TypeAdapter[Out] | None = None,
        unserved: UnservedQueues | None = None,
    ) -> None:
        """
        Create a ticket.

        `output` is the type of the result, by default plain data. `unserved` warns if
        the job waits for a worker and there is none.
        """
        self.id = submitted.id
        self.replayed = submitted.replayed
        self._engine = engine
        self._output = output
        self._unserved = unserved

    def __repr__(self) -> str:
        return f"Ticket({self.id!r})"

    async def job(self) -> Job:
        """Return the current state of the job."""
        return await self._engine.payloads.whole(await self._row())

    async def wait(self, timeout: float = 60.0) -> Job:  # noqa: ASYNC109 - a wait, not a failure
        """Return the job once it has ended, or as it is after the timeout."""
        job, left = await self._row(), timeout
        if self._unserved is not None and timeout > UNSERVED_SECONDS:
            job = await self._engine.wait(self.id, job.owner, timeout=UNSERVED_SECONDS)
            left = timeout - UNSERVED_SECONDS
            if job.state is JobState.QUEUED:
                await self._unserved.check(self._engine.store, job.queue)
        if not job.state.is_final:
            job = await self._engine.wait(self.id, job.owner, timeout=left)
        return await self._engine.payloads.whole(job)

    async def result(self, timeout: float = 60.0) -> Out:  # noqa: ASYNC109 - same
        """
        Return the output; raise `JobFailed` if the job ended without one.

        If the job was submitted by its capability, the output has the type that the
        handler's annotation names; if by a name, it is plain JSON data.
        """
        job = await self.wait(timeout)
        if job.state is JobState.SUCCEEDED:
            if (named := reference(job.output)) is not None:
                raise BlobMissing(
                    f"the output of job {self.id} no longer exists: {named.key.id}"
                )
            return self._typed(job.output or "null")
        if job.state.is_final:
            raise JobFailed(job)
        raise TimeoutError(
            f"job {self.id} is {job.state} after {timeout:g} s; it continues"
        )

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Yield the job's events from the first one until it ends."""
        async for event in self._engine.events(await self._row(), after=after):
            yield event

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the text that the job streams, piece by piece, until the job ends."""
        text = Text()
        async for event in self.events():
            piece = text.take(event.n, event.type, event.data)
            if piece is not None:
                yield piece

    async def cancel(self) -> Job:
        """Cancel the job."""
        job = await self._engine.cancel(self.id, (await self._row()).owner)
        return await self._engine.payloads.whole(job)

    async def _row(self) -> Job:
        found = await self._engine.store.find([self.id])
        if not found:
            raise JobNotFound(
                f"job {self.id!r} no longer exists: its retention has ended"
            )
        return found[0]

    def _typed(self, text: str) -> Out:
        if self._output is None:
            return cast("Out", orjson.loads(text))
        try:
            return self._output.validate_json(text)
        except ValidationError as error:
            raise ResultMismatch(
                f"the output of job {self.id} does not match the type that its "
                f"capability declares ({error.error_count()} errors); "
                "`(await ticket.job()).output` is the stored JSON"
            ) from error
