"""
Periodic work on due, overdue, orphaned and old jobs.

Every process may run it: each change is a compare-and-set, so concurrent runs do no
harm. The store's clock decides what is due, overdue or old, so a process with a fast
clock cannot end the jobs of others.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Instant, Job, JobState
from backburner.domain.jobs.transitions import Limits
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.groups.batches import Batches
from backburner.engine.loop import Loop
from backburner.engine.observability import telemetry
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.store import Store
from backburner.ports.store.jobs import Move, Settlement
from backburner.ports.store.maintenance import Retention

BATCH = 500
MANY = 10_000
"""How many rows of the totals are summed up at once."""
SAMPLES = 2_000
"""How many accounts of budgets are sampled at once."""


@dataclass(frozen=True, slots=True)
class UpkeepOptions:
    """Intervals and retention times."""

    poll: float = 1.0
    lease: timedelta = timedelta(seconds=10)
    rescue_every: float = 2.0
    prune_every: float = 60.0
    prune_after: float = 0.0
    sample_every: float = 60.0
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    usage: timedelta = timedelta(days=400)
    published: timedelta = timedelta(days=7)


class Sight:
    """
    Decides how long a worker must be silent to be declared dead. Pure; milliseconds.

    No worker can send heartbeats while the store is unreachable, so silence in that
    time means nothing. A store counts as unreachable if it has not answered for half a
    lease. Afterwards every worker has a whole lease to report again.
    """

    def __init__(self, *, lease: int) -> None:
        """Create it with the lease in milliseconds."""
        self._lease = lease
        self._seen_at = 0
        self._away_since: int | None = None
        self._back_at = 0
        self._is_away = False

    def miss(self) -> None:
        """Record that the store did not answer."""
        self._is_away = True

    def see(self, asked_at: int, now: int) -> None:
        """Record that the store answered."""
        since = self._seen_at if self._is_away else asked_at
        if now - since > self._lease // 2:
            if self._away_since is None:
                self._away_since = self._seen_at or asked_at
            self._back_at = now
        self._seen_at, self._is_away = now, False

    def lease(self, now: int) -> int:
        """Return the silence after which a worker counts as dead now."""
        if self._away_since is not None and now - self._back_at >= self._lease:
            self._away_since = None
        if self._away_since is None:
            return self._lease
        return self._lease + self._back_at - self._away_since


class Upkeep:
    """Runs six maintenance loops over one store."""

    def __init__(  # noqa: PLR0913 - one argument per collaborator
        self,
        store: Store,
        notifier: Notifier,
        clock: Clock,
        faults: Faults,
        options: UpkeepOptions,
        payloads: Payloads | None = None,
        *,
        batches: Batches | None = None,
        read_clock: Callable[[], Awaitable[Instant]] | None = None,
    ) -> None:
        """Create the loops; `read_clock` replaces the store's own clock."""
        self._store = store
        self._read_clock = read_clock or store.read_clock
        self._notifier = notifier
        self._clock = clock
        self._faults = faults
        self._options = options
        self._payloads = payloads or Payloads()
        self._batches = batches
        self._sight = Sight(lease=options.lease // timedelta(milliseconds=1))
        self._promoting = Loop("promote", self.promote, every=options.poll)
        self._loops = (
            self._promoting,
            Loop("expire", self.expire, every=options.poll),
            Loop("rescue", self.rescue, every=options.rescue_every),
            Loop(
                "prune",
                self.prune,
                every=options.prune_every,
                after=options.prune_after,
            ),
            Loop("free", self.free, every=options.rescue_every),
            Loop(
                "sample",
                self.sample,
                every=options.sample_every,
                after=options.sample_every,
            ),
        )
        self._unsubscribe = notifier.listen(self._hear)

    def start(self) -> None:
        """Start all loops."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Stop all loops."""
        self._unsubscribe()
        for loop in self._loops:
            await loop.stop()

    async def promote(self) -> float | None:
        """Queue due jobs; return the seconds until the next one."""
        due = await self._store.next_due()
        if due is None:
            return None
        now = await self._read_clock()
        if due > now:
            return (due - now) / 1000
        promoted = await self._store.promote(now=now, limit=BATCH)
        self._faults.hit("upkeep.promoted")
        if not promoted:
            return None  # other processes have locked what is due
        self._notifier.notify(Notification.WORK | Notification.EVENTS)
        return 0.0

    async def expire(self) -> float | None:
        """Fail waiting jobs whose deadline has passed."""
        now = await self._read_clock()
        overdue = await self._store.overdue(now=now, limit=BATCH)
        if overdue:
            moves = [
                Move(
                    job.seq,
                    job.state,
                    job.generation,
                    transitions.expire(job, now=now),
                    job.consequences,
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
            self._notifier.notify(Notification.WORK | Notification.EVENTS)
            self._touch(overdue)
        return 0.0 if len(overdue) == BATCH else None

    async def rescue(self) -> float | None:
        """Queue the jobs of workers whose heartbeats stopped."""
        lease = await self._silence()
        orphans = await self._store.orphans(lease=lease, limit=BATCH)
        self._faults.hit("upkeep.workers_removed")
        if orphans:
            await self._stall(orphans)
        return 0.0 if len(orphans) == BATCH else None

    async def _silence(self) -> timedelta:
        """Check whether the store answers; return the silence that counts as death."""
        asked_at = self._clock.monotonic()
        try:
            await self._read_clock()
        except Exception:
            self._sight.miss()
            raise
        now = self._clock.monotonic()
        self._sight.see(asked_at, now)
        return timedelta(milliseconds=self._sight.lease(now))

    async def free(self) -> float | None:
        """Release expired budget holds that belong to no job."""
        freed = await self._store.free_holds(limit=BATCH)
        return 0.0 if freed == BATCH else None

    async def sample(self) -> float | None:
        """Record the balances of budgets' accounts that have changed."""
        await self._store.sample_accounts(limit=SAMPLES)
        forgotten = await self._store.forget_samples(limit=MANY)
        return 1.0 if forgotten == MANY else None

    async def prune(self) -> float | None:
        """Delete rows whose retention time has passed."""
        now = await self._read_clock()
        pruned = await self._store.prune(
            keep=self._options.retention, now=now, limit=BATCH
        )
        if pruned:
            await self._payloads.drop(pruned)
            log.info("jobs pruned", count=len(pruned))
        before = now - self._options.usage // timedelta(milliseconds=1)
        forgotten = await self._store.forget_usage(before=before, limit=BATCH)
        forgotten += await self._store.forget_accounts(before=before, limit=BATCH)
        published = now - self._options.published // timedelta(milliseconds=1)
        told = await self._store.forget_published(
            before=published, now=now, limit=BATCH
        )
        filled = await self._store.fill_event_owners(limit=BATCH)
        fewer = await self._store.compact_totals(limit=MANY)
        is_more = max(len(pruned), forgotten, told, filled) >= BATCH
        return 0.0 if is_more or fewer >= MANY // 2 else None

    async def _stall(self, orphans: Sequence[Job]) -> None:
        now, limits = self._clock.now(), self._options.limits
        settlements = [
            Settlement(
                job.seq,
                job.token or "",
                transitions.stall(job, now=now, limits=limits),
                consequences=job.consequences,
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
        self._notifier.notify(Notification.WORK | Notification.EVENTS)
        self._touch(orphans)

    def _touch(self, jobs: Sequence[Job]) -> None:
        if self._batches is not None:
            self._batches.touch({job.batch for job in jobs if job.batch is not None})

    def _hear(self, what: Notification) -> None:
        if what & Notification.SCHEDULE:
            self._promoting.poke()
