"""
Child jobs that a handler waits for: each is submitted once, its result is a step.

The end of a child submits a job that signals the parent, in the same transaction. The
child locks no row of its parent. `engine/run/parents.py` has that job.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Protocol

import orjson
from pydantic_core import to_json

from backburner.domain.errors import PermanentError
from backburner.domain.jobs.job import (
    Claim,
    Job,
    JobState,
    Owner,
    Visibility,
    WaitReason,
)
from backburner.domain.jobs.step import CHILD as RUN
from backburner.domain.jobs.wait import NewWait, child_wait
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.run.steps import StepJournal
from backburner.engine.run.waiting import Waiting


class ChildFailed(PermanentError):
    """A child job failed or was cancelled; catch it to continue without its result."""

    def __init__(self, job: Job) -> None:
        error = job.error
        reason = "" if error is None else f": {error.code}: {error.message}"
        super().__init__(f"child job {job.id} {job.state}{reason}", code="CHILD_FAILED")
        self.job = job


class Finds(Protocol):
    """Reads jobs."""

    async def find(self, job_id: str, owner: Visibility) -> Job:
        """Return an owner's job."""
        ...


class Children:
    """The child jobs of one run."""

    def __init__(
        self,
        claim: Claim,
        journal: StepJournal,
        waiting: Waiting,
        storage: Finds | None,
        payloads: Payloads,
    ) -> None:
        self._claim = claim
        self._journal = journal
        self._waiting = waiting
        self._storage = storage
        self._payloads = payloads
        self._counts: Counter[bytes] = Counter()

    async def run(
        self,
        name: str,
        value: Any,
        submit: Callable[[str], Awaitable[str]],
    ) -> Any:
        """Return the output of a child; `submit` takes an idempotency key."""
        self._waiting.require()
        request = name.encode() + b"\0" + to_json(value, by_alias=True)
        # A second child with the same request is a different child.
        claim, count = self._claim, self._counts[request]
        self._counts[request] += 1
        numbered = f"{claim.id}\0{claim.generation}\0{count}\0".encode() + request
        key = f"run-{sha256(numbered).hexdigest()}"

        async def begin() -> str:
            child: str
            child, _ = await self._journal.call(
                RUN, request, lambda _: submit(key), str
            )
            await self._journal.flush()
            return child

        child = await self._waiting.begin(begin())

        async def fetch(_key: str) -> Any:
            return await self._result(child)

        output, _ = await self._journal.call(RUN, child.encode(), fetch, Any)
        return output

    async def _result(self, child: str) -> Any:
        """Return the output of a child, once it has ended."""
        assert self._storage is not None  # noqa: S101 - tells the type checker
        owner = Owner(self._claim.tenant, self._claim.user)
        job, generation = None, 0
        # One that was retried since is waited for again.
        while job is None or not job.state.is_final:
            name = child_wait(child, generation)
            await self._waiting.decided(NewWait(name, WaitReason.JOB))
            job = await self._storage.find(child, owner)
            generation = job.generation
        if job.state is not JobState.SUCCEEDED:
            raise ChildFailed(job)
        return orjson.loads(await self._payloads.text(job.output or "null"))
