"""Inputs and outputs on their way to a row and back: large ones go by reference."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from backburner.domain.blob import BlobKey, Reference, is_large, reference
from backburner.domain.errors import BlobMissing, StoreUnavailable
from backburner.domain.flow import FROM_NEEDS, NewStep
from backburner.domain.job import Claim, Instant, Job, NewJob, Owner
from backburner.engine.loop import Loop
from backburner.ports.blobs import BlobStore
from backburner.ports.clock import Clock
from backburner.ports.log import log
from backburner.ports.store import JobStore, Store

CHUNK: Final = 256 * 1024
"""How much of a blob is in memory while it is sent."""
SWEEP_AFTER: Final = timedelta(days=1)
SWEEP_EVERY: Final = 3600.0
SWEEP_PAGE: Final = 100


class Payloads:
    """
    Keeps large texts apart from the rows that name them.

    A content is durable before the commit that names it. Without a blob store
    everything stays in its row.
    """

    def __init__(
        self, blobs: BlobStore | None = None, store: JobStore | None = None
    ) -> None:
        self._blobs = blobs
        self._jobs = store

    async def stow_inputs(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Put large inputs away; return the jobs as they are to be stored."""
        if self._blobs is None or not any(is_large(job.input) for job in jobs):
            return jobs
        return await asyncio.to_thread(self._stow, self._blobs, jobs)

    def stow_input(self, job: NewJob) -> NewJob:
        """Do the same for one job, inside a transaction body."""
        if self._blobs is None or not is_large(job.input):
            return job
        return self._stow(self._blobs, [job])[0]

    async def stow_steps(self, steps: Sequence[NewStep]) -> Sequence[NewStep]:
        """Put the large inputs of steps away; return them as they are to be stored."""
        jobs = [step.job for step in steps]
        stowed = await self.stow_inputs(jobs)
        if stowed is jobs:
            return steps
        return [replace(s, job=job) for s, job in zip(steps, stowed, strict=True)]

    def _stow(self, blobs: BlobStore, jobs: Sequence[NewJob]) -> list[NewJob]:
        stowed: list[NewJob] = []
        for job in jobs:
            kept = job
            if is_large(job.input):
                text = _put(blobs, BlobKey(job.id, "input"), job.input)
                kept = replace(job, input=text)
            stowed.append(kept)
        return stowed

    async def stow_output(self, claim: Claim, text: str) -> str:
        """Put a large output away; return what its row is to hold."""
        if self._blobs is None or not is_large(text):
            return text
        # By token: a worker that lost the job must not write over another's output.
        key = BlobKey(claim.id, f"output-{claim.token}")
        return await asyncio.to_thread(_put, self._blobs, key, text)

    async def put(self, key: BlobKey, content: bytes) -> None:
        """Keep a content of a handler, for as long as its job is kept."""
        await asyncio.to_thread(self._store().put, [(key, content)])

    async def read(self, key: BlobKey) -> bytes:
        """Return a content; `BlobMissing` if there is none."""
        return await asyncio.to_thread(self._store().read, key)

    async def text(self, stored: str) -> str:
        """Return the text that a row holds or names; `BlobMissing` if it is gone."""
        named = reference(stored)
        if named is None:
            return stored
        content = await self.read(named.key)
        _check(named, len(content))
        return content.decode()

    async def whole(self, job: Job) -> Job:
        """Return a job with the texts that its row names; what is gone stays a name."""
        if job.input == FROM_NEEDS:
            job = replace(job, input="null")  # it has none of its own
        if reference(job.input) is None and reference(job.output) is None:
            return job
        output = None if job.output is None else await self._found(job.output)
        return replace(job, input=await self._found(job.input), output=output)

    async def _found(self, stored: str) -> str:
        try:
            return await self.text(stored)
        except BlobMissing:
            return stored

    async def stream(self, named: Reference) -> AsyncGenerator[bytes, None]:
        """Yield a content piece by piece."""
        sent = 0
        while sent < named.size:
            piece = await asyncio.to_thread(
                self._store().read, named.key, offset=sent, size=CHUNK
            )
            if not piece:
                _check(named, sent)
            sent += len(piece)
            yield piece

    async def size(self, key: BlobKey) -> int:
        """Return how many bytes a content has; `BlobMissing` if there is none."""
        return await asyncio.to_thread(self._store().size, key)

    async def check(self, named: Reference) -> None:
        """Raise `BlobMissing` unless the content is there and whole."""
        _check(named, await self.size(named.key))

    async def drop(self, jobs: Sequence[str]) -> None:
        """Forget the blobs of jobs that are gone; what fails is swept later."""
        if self._blobs is None or not jobs:
            return
        try:
            await asyncio.to_thread(self._blobs.delete, jobs)
        except StoreUnavailable as error:
            log.warning("blobs not deleted", count=len(jobs), code=error.code)

    async def owner(self, job_id: str) -> Owner | None:
        """Return whose a job is, and its blobs."""
        found = [] if self._jobs is None else await self._jobs.find([job_id])
        return found[0].owner if found else None

    async def old(self, *, before: Instant, after: str | None) -> Sequence[str]:
        """Return a page of jobs whose blobs were put before a time."""
        if self._blobs is None:
            return []
        return await asyncio.to_thread(
            self._blobs.jobs, before=before, after=after, limit=SWEEP_PAGE
        )

    def _store(self) -> BlobStore:
        if self._blobs is None:
            raise BlobMissing("there is no blob store here")
        return self._blobs


class JobBlobs:
    """A running job's blobs: kept for as long as the job is."""

    def __init__(self, claim: Claim, payloads: Payloads) -> None:
        self._claim = claim
        self._payloads = payloads
        self._count = 0

    async def put(self, content: bytes) -> str:
        """Keep a content, durable when this returns; return its id."""
        self._count += 1
        key = BlobKey(self._claim.id, f"{self._claim.token}-{self._count}")
        await self._payloads.put(key, content)
        return key.id

    async def get(self, blob_id: str) -> bytes:
        """Return a content of this job, or of another job of the same owner."""
        key = BlobKey.read(blob_id)
        if key.job != self._claim.id and not await self._is_ours(key.job):
            raise BlobMissing("there is no such blob")
        return await self._payloads.read(key)

    async def _is_ours(self, job_id: str) -> bool:
        """Look whose it is: an id may come from an input, and so from anybody."""
        ours = Owner(self._claim.tenant, self._claim.user)
        return await self._payloads.owner(job_id) == ours


class Sweeper:
    """Forgets blobs whose job was never committed, or is gone."""

    def __init__(self, store: Store, payloads: Payloads, clock: Clock) -> None:
        self._store = store
        self._payloads = payloads
        self._clock = clock
        self._loop = Loop("sweep", self.sweep, every=SWEEP_EVERY)

    def start(self) -> None:
        """Begin to sweep."""
        self._loop.start()

    async def stop(self) -> None:
        """Sweep no more."""
        await self._loop.stop()

    async def sweep(self) -> float | None:
        """Look at every old blob once."""
        before = self._clock.now() - SWEEP_AFTER // timedelta(milliseconds=1)
        after: str | None = None
        while page := await self._payloads.old(before=before, after=after):
            known = {job.id for job in await self._store.find(page)}
            orphans = [job for job in page if job not in known]
            await self._payloads.drop(orphans)
            if orphans:
                log.info("blobs swept", count=len(orphans))
            after = page[-1]
        return None


def _put(blobs: BlobStore, key: BlobKey, text: str) -> str:
    content = text.encode()
    blobs.put([(key, content)])
    return str(Reference(key, len(content)))


def _check(named: Reference, size: int) -> None:
    if size != named.size:
        raise BlobMissing(f"blob {named.key.id} has {size} bytes of {named.size}")
