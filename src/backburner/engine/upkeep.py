"""
What must happen whether or not anybody asks: due, overdue, orphaned and old jobs.

Every process may run these; each step is a compare-and-set, so two at once do no harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from backburner.domain import transitions
from backburner.domain.job import Job, JobState
from backburner.domain.transitions import Limits
from backburner.engine import telemetry
from backburner.engine.batches import Batches
from backburner.engine.loop import Loop
from backburner.engine.payloads import Payloads
from backburner.ports.bell import Bell, Ring
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.store import Move, Retention, Settlement, Store

BATCH = 500


@dataclass(frozen=True, slots=True)
class UpkeepOptions:
    """How often, and how long things are kept."""

    poll: float = 1.0
    lease: timedelta = timedelta(seconds=10)
    rescue_every: float = 2.0
    prune_every: float = 60.0
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    usage: timedelta = timedelta(days=400)


class Upkeep:
    """Five loops over one store."""

    def __init__(  # noqa: PLR0913 - what it needs of the world
        self,
        store: Store,
        bell: Bell,
        clock: Clock,
        faults: Faults,
        options: UpkeepOptions,
        payloads: Payloads | None = None,
        *,
        batches: Batches | None = None,
    ) -> None:
        self._store = store
        self._bell = bell
        self._clock = clock
        self._faults = faults
        self._options = options
        self._payloads = payloads or Payloads()
        self._batches = batches
        self._promoting = Loop("promote", self.promote, every=options.poll)
        self._loops = (
            self._promoting,
            Loop("expire", self.expire, every=options.poll),
            Loop("rescue", self.rescue, every=options.rescue_every),
            Loop("prune", self.prune, every=options.prune_every),
            Loop("free", self.free, every=options.rescue_every),
        )
        self._deafen = bell.listen(self._hear)

    def start(self) -> None:
        """Begin all of them."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """End all of them."""
        self._deafen()
        for loop in self._loops:
            await loop.stop()

    async def promote(self) -> float | None:
        """Queue what is due; come back when the next one is."""
        due = await self._store.next_due()
        now = self._clock.now()
        if due is None or due > now:
            return None if due is None else (due - now) / 1000
        promoted = await self._store.promote(now=now, limit=BATCH)
        self._faults.hit("upkeep.promoted")
        if promoted:
            self._bell.ring(Ring.WORK | Ring.EVENTS)
        return 0.0

    async def expire(self) -> float | None:
        """Fail waiting jobs whose time is over."""
        now = self._clock.now()
        overdue = await self._store.overdue(now=now, limit=BATCH)
        if overdue:
            moves = [
                Move(
                    job.seq,
                    job.state,
                    job.generation,
                    transitions.expire(job, now=now),
                    job.link,
                )
                for job in overdue
            ]
            moved = await self._store.move(moves)
            for job, is_moved in zip(overdue, moved, strict=True):
                if is_moved:
                    telemetry.jobs_finished.labels(
                        job.capability, JobState.FAILED
                    ).inc()
            log.warning("jobs expired", count=len(overdue), code=transitions.EXPIRED)
            self._bell.ring(Ring.WORK | Ring.EVENTS)
            self._touch(overdue)
        return 0.0 if len(overdue) == BATCH else None

    async def rescue(self) -> float | None:
        """Take jobs from workers that stopped beating."""
        orphans = await self._store.orphans(lease=self._options.lease, limit=BATCH)
        self._faults.hit("upkeep.buried")
        if orphans:
            await self._stall(orphans)
        return 0.0 if len(orphans) == BATCH else None

    async def free(self) -> float | None:
        """Free what is held without a job and past its time."""
        freed = await self._store.free_holds(limit=BATCH)
        return 0.0 if freed == BATCH else None

    async def prune(self) -> float | None:
        """Delete what was kept long enough."""
        pruned = await self._store.prune(
            keep=self._options.retention, now=self._clock.now(), limit=BATCH
        )
        if pruned:
            await self._payloads.drop(pruned)
            log.info("jobs pruned", count=len(pruned))
        before = self._clock.now() - self._options.usage // timedelta(milliseconds=1)
        forgotten = await self._store.forget_usage(before=before, limit=BATCH)
        forgotten += await self._store.forget_accounts(before=before, limit=BATCH)
        return 0.0 if max(len(pruned), forgotten) >= BATCH else None

    async def _stall(self, orphans: Sequence[Job]) -> None:
        now, limits = self._clock.now(), self._options.limits
        settlements = [
            Settlement(
                job.seq,
                job.token or "",
                transitions.stall(job, now=now, limits=limits),
                link=job.link,
            )
            for job in orphans
        ]
        applied = await self._store.settle(settlements)
        for job, change in zip(orphans, applied, strict=True):
            if change is not None:
                telemetry.leases_expired.inc()
                if change.to is JobState.FAILED:
                    telemetry.poison_jobs.inc()
                    telemetry.jobs_finished.labels(job.capability, change.to).inc()
                log.warning(
                    change.event.replace("job.", "job "),
                    job_id=job.id,
                    worker=job.worker,
                    crashes=change.crashes,
                )
        self._bell.ring(Ring.WORK | Ring.EVENTS)
        self._touch(orphans)

    def _touch(self, jobs: Sequence[Job]) -> None:
        if self._batches is not None:
            self._batches.touch({job.batch for job in jobs if job.batch is not None})

    def _hear(self, what: Ring) -> None:
        if what & Ring.SCHEDULE:
            self._promoting.poke()
