"""Stores large inputs and outputs as blobs, and reads them back."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from backburner.domain.blobs.app_blob import BLOB, UPLOAD, is_kind
from backburner.domain.blobs.blob import BlobKey, Reference, is_large, reference
from backburner.domain.errors import BlobMissing, CallerError, StoreUnavailable
from backburner.domain.groups.batch import Members
from backburner.domain.groups.flow import FROM_NEEDS
from backburner.domain.jobs.completion import completion_of, large_input
from backburner.domain.jobs.job import Claim, Instant, Job, NewJob, Owner
from backburner.engine.blobs.app_blobs import AppBlobs
from backburner.engine.loop import Loop
from backburner.ports.blobs import BlobStore
from backburner.ports.clock import Clock
from backburner.ports.log import log
from backburner.ports.store import Store
from backburner.ports.store.jobs import JobStore

CHUNK: Final = 256 * 1024
"""How much of a blob is in memory while it is sent."""
SWEEP_AFTER: Final = timedelta(days=1)
SWEEP_EVERY: Final = 3600.0
SWEEP_PAGE: Final = 100
EXPIRE_EVERY: Final = 60.0


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
        self.of_app: Callable[[Claim], AppBlobs] | None = None
        """Opens the blobs that a running job's application has of its owner."""

    async def stow_inputs(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Store large inputs as blobs; return the jobs with references to them."""
        if self._blobs is None or not any(is_large(job.input) for job in jobs):
            return jobs
        return await asyncio.to_thread(self._stow, self._blobs, jobs)

    def stow_input(self, job: NewJob) -> NewJob:
        """Do the same for one job, inside a transaction body."""
        if self._blobs is None or not is_large(job.input):
            return job
        return self._stow_aside(self._blobs, [job])[0]

    async def stow_members(self, members: Members) -> Members:
        """
        Store large inputs of jobs and flows as blobs.

        Return the members to store.
        """
        jobs = _jobs_of(members)
        return _with_jobs(members, jobs, await self.stow_inputs(jobs))

    def stow_members_inside(self, members: Members) -> Members:
        """Do the same inside a transaction body."""
        jobs = _jobs_of(members)
        if self._blobs is None or not any(is_large(job.input) for job in jobs):
            return members
        return _with_jobs(members, jobs, self._stow_aside(self._blobs, jobs))

    def _stow_aside(self, blobs: BlobStore, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Store blobs within a body, which may run on the event loop's thread."""
        work = partial(self._stow, blobs, jobs)
        return work() if self._jobs is None else self._jobs.aside(work)

    def _stow(self, blobs: BlobStore, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Store all blobs or none."""
        large = [job for job in jobs if is_large(job.input)]
        try:
            texts = {
                job.id: _put(blobs, BlobKey(job.id, "input"), job.input)
                for job in large
            }
        except StoreUnavailable:
            with suppress(StoreUnavailable):
                blobs.delete([job.id for job in large])
            raise
        return [
            replace(job, input=texts[job.id]) if job.id in texts else job
            for job in jobs
        ]

    @asynccontextmanager
    async def dropped_if_refused(self, stowed: Members) -> AsyncGenerator[None, None]:
        """
        Delete stored inputs if the block raises a refusal.

        If the store does not answer, it may have the jobs: then the inputs are left to
        the sweeper.
        """
        try:
            yield
        except CallerError:
            await self.drop_inputs(stowed)
            raise

    async def drop_inputs(self, stowed: Members) -> None:
        """Delete the stored inputs of jobs and flows that were not stored."""
        await self.drop(_large_ones(_jobs_of(stowed)))

    async def stow_output(self, claim: Claim, text: str) -> str:
        """Store a large output as a blob; return the value for its row."""
        if self._blobs is None or not is_large(text):
            return text
        # Include the token: a worker that lost the job must not overwrite another's
        # output.
        key = BlobKey(claim.id, f"output-{claim.token}")
        content = text.encode()
        contents = [(key, content)]
        if completion_of(claim.callback) is not None:
            contents.append(large_input(claim, key, text))
        await asyncio.to_thread(self._blobs.put, contents)
        return str(Reference(key, len(content)))

    async def stow_step(self, claim: Claim, n: int, text: str) -> str:
        """Store a large result of a step as a blob; return the value for its row."""
        if self._blobs is None:
            return text
        # Include the token, as for outputs.
        key = BlobKey(claim.id, f"step-{claim.token}-{n}")
        content = text.encode()
        await asyncio.to_thread(self._blobs.put, [(key, content)])
        return str(Reference(key, len(content)))

    async def put(self, key: BlobKey, content: bytes) -> None:
        """Store a handler's content, which is kept as long as its job."""
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
        """Return a job with its large texts loaded; missing ones stay references."""
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
        """Raise `BlobMissing` unless the content exists and is complete."""
        _check(named, await self.size(named.key))

    async def discard_unfinished(self, *, before: Instant) -> int:
        """Discard what dead processes were writing before a time; return how many."""
        if self._blobs is None:
            return 0
        return await asyncio.to_thread(self._blobs.discard_unfinished, before=before)

    async def drop(self, jobs: Sequence[str]) -> None:
        """Delete the blobs of deleted jobs; failures are left to the sweeper."""
        if self._blobs is None or not jobs:
            return
        try:
            await asyncio.to_thread(self._blobs.delete, jobs)
        except StoreUnavailable as error:
            log.warning("blobs not deleted", count=len(jobs), code=error.code)

    async def owner(self, job_id: str) -> Owner | None:
        """Return the owner of a job, and so of its blobs."""
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
            raise BlobMissing("no blob store is available here")
        return self._blobs


class JobBlobs:
    """A running job's blobs, kept as long as the job."""

    def __init__(self, claim: Claim, payloads: Payloads) -> None:
        self._claim = claim
        self._payloads = payloads
        self._count = 0

    async def put(self, content: bytes) -> str:
        """Store a content durably; return its id."""
        self._count += 1
        key = BlobKey(self._claim.id, f"{self._claim.token}-{self._count}")
        await self._payloads.put(key, content)
        return key.id

    async def get(self, blob_id: str) -> bytes:
        """Return a content of this job, or of another job of the same owner."""
        key = BlobKey.read(blob_id)
        if key.job != self._claim.id and not await self._is_ours(key.job):
            raise BlobMissing("the blob does not exist")
        return await self._payloads.read(key)

    async def _is_ours(self, job_id: str) -> bool:
        """Check the owner: an id may come from an input and so from anyone."""
        ours = Owner(self._claim.tenant, self._claim.user)
        return await self._payloads.owner(job_id) == ours


class Sweeper:
    """
    Deletes contents without a row, and applications' blobs that have expired.

    A job's contents belong to its row, an application's blob to its own. An upload that
    was not confirmed within a day has no row.
    """

    def __init__(self, store: Store, payloads: Payloads, clock: Clock) -> None:
        self._store = store
        self._payloads = payloads
        self._clock = clock
        self._loops = (
            Loop("sweep", self.sweep, every=SWEEP_EVERY),
            Loop("expire blobs", self.expire, every=EXPIRE_EVERY),
        )

    def start(self) -> None:
        """Start sweeping."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Stop sweeping."""
        for loop in self._loops:
            await loop.stop()

    async def sweep(self) -> float | None:
        """Check every old blob once."""
        before = self._clock.now() - SWEEP_AFTER // timedelta(milliseconds=1)
        after: str | None = None
        while page := await self._payloads.old(before=before, after=after):
            known = await self._known(page)
            orphans = [group for group in page if group not in known]
            await self._payloads.drop(orphans)
            if orphans:
                log.info("blobs swept", count=len(orphans))
            after = page[-1]
        if count := await self._payloads.discard_unfinished(before=before):
            log.info("unfinished uploads discarded", count=count)
        return None

    async def expire(self) -> float | None:
        """Delete expired blobs of applications, rows first."""
        now = self._clock.now()
        while ids := await self._store.remove_expired_blobs(now, limit=SWEEP_PAGE):
            await self._payloads.drop(ids)
            log.info("blobs expired", count=len(ids))
        return None

    async def _known(self, groups: Sequence[str]) -> Collection[str]:
        """Return the ids that belong to a job or to a blob's row."""
        blobs = [group for group in groups if is_kind(BLOB, group)]
        others = (f"{BLOB}_", f"{UPLOAD}_")
        jobs = [group for group in groups if not group.startswith(others)]
        found = await self._store.find(jobs) if jobs else ()
        rows = await self._store.find_blobs(blobs) if blobs else ()
        return {job.id for job in found} | {row.id for row in rows}


def _jobs_of(members: Members) -> Sequence[NewJob]:
    steps = (step.job for flow in members.flows for step in flow.steps)
    return [*members.jobs, *steps]


def _with_jobs(
    members: Members, before: Sequence[NewJob], after: Sequence[NewJob]
) -> Members:
    """Return members with their jobs replaced, in the order of `_jobs_of`."""
    if after is before:
        return members
    left = iter(after)
    jobs = [next(left) for _ in members.jobs]
    flows = [
        replace(flow, steps=[replace(step, job=next(left)) for step in flow.steps])
        for flow in members.flows
    ]
    return Members(jobs, flows)


def _large_ones(stowed: Sequence[NewJob]) -> list[str]:
    return [job.id for job in stowed if reference(job.input) is not None]


def _put(blobs: BlobStore, key: BlobKey, text: str) -> str:
    content = text.encode()
    blobs.put([(key, content)])
    return str(Reference(key, len(content)))


def _check(named: Reference, size: int) -> None:
    if size != named.size:
        raise BlobMissing(f"blob {named.key.id} has {size} bytes of {named.size}")
