"""
Claims jobs, runs their handlers and settles the outcomes.

`attempt.py` shows the life of an attempt; `settler.py` stores the outcomes in batches.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeAlias

from backburner.domain.errors import StoreUnavailable, readable
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim, Instant, JobState
from backburner.domain.jobs.outcome import Failed, HandedBack, Outcome
from backburner.domain.jobs.transitions import (
    Limits,
    is_last_chance,
)
from backburner.domain.lanes.lane import Lane, is_reachable
from backburner.engine.loop import Loop, supervised
from backburner.engine.models.lanes import PAID_PATIENCE, PATIENCE, Lanes
from backburner.engine.models.usage import UsageRecorder
from backburner.engine.observability import telemetry
from backburner.engine.run.attempt import Attempt
from backburner.engine.run.claim_planner import ClaimPlanner
from backburner.engine.run.heartbeat import Heartbeat
from backburner.engine.run.outcomes import Interruption
from backburner.engine.run.runtime import Runtime
from backburner.engine.run.settler import Ended, Settler
from backburner.engine.run.streaming import StreamWriter
from backburner.engine.run.timeouts import Timeouts
from backburner.engine.run.unknown_jobs import UnknownJobs
from backburner.engine.seldom import Seldom
from backburner.ports.log import log
from backburner.ports.notifier import Notification
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.ports.store.maintenance import JobFilter
from backburner.ports.store.workers import WorkerInfo, WorkerLost

UNKNOWN_SECONDS = 60.0
"""How often to log that this worker does not have a capability, for each of them."""
STUBBORN_SECONDS = 5.0
"""How long to wait for a handler to end after it was interrupted."""


MakeHeartbeat: TypeAlias = Callable[
    [Callable[[str], None], Callable[[], int], Callable[[], Claim | None]], Heartbeat
]
"""
Makes a heartbeat from what to call when the lease is lost, and from functions that
return the number of running jobs and the job whose handler the event loop runs now.
"""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Settings of a worker."""

    slots: int = 100
    queues: Sequence[str] = ()
    """
    The queues it claims from, in order of preference; empty: those of its capabilities.
    """
    poll: float = 1.0
    """Seconds between polls, in case a notification was lost."""
    beat: float = 2.0
    patience: float = PATIENCE
    """How many seconds a handler may wait for a lane while it holds its slot …"""
    paid_patience: float = PAID_PATIENCE
    """… and how many if it has already paid for a model call."""
    limits: Limits = field(default_factory=Limits)


class Worker:
    """Runs jobs concurrently in one process, with one lease for all of them."""

    def __init__(
        self,
        runtime: Runtime,
        options: WorkerOptions,
        heartbeat: MakeHeartbeat,
    ) -> None:
        self.id = ""
        self._options = options
        self._intake = runtime.intake
        self._claim_planner = ClaimPlanner(
            runtime.registry.claimed(options.queues),
            runtime.registry.policies,
            self._count,
            *(() if runtime.intake is None else (runtime.intake.bound,)),
        )
        self._loop = asyncio.get_running_loop()
        self._heartbeat = heartbeat(
            self._hear_lost, lambda: self.running, self._current
        )
        # In the order of arrival, so that a simulation can be replayed.
        self._attempts: dict[Attempt, None] = {}
        self._timeouts: Timeouts[Attempt] = Timeouts(self._time_out)
        self._is_lost = False
        self._former: list[str] = []
        """Earlier ids of this worker whose jobs are still to be returned."""
        self._is_in_doubt = False
        self._unknown: set[tuple[int, str]] = set()
        """Jobs that the last check found held by this worker but not running."""
        self._seldom = Seldom(UNKNOWN_SECONDS)
        self._unknown_jobs = UnknownJobs(runtime.clock, options.limits.throttled)
        self._is_stopping = False
        self._is_draining = False
        """Whether an operator told it to finish its jobs and claim no others."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._checking = Loop("worker-check", self._check_held, every=options.beat)
        self._stream_writer = StreamWriter(
            runtime.store, runtime.notifier, runtime.clock
        )
        self._usage_recorder = UsageRecorder(
            runtime.store, runtime.prices, runtime.clock
        )
        self._lanes = Lanes(
            runtime.store,
            runtime.clock,
            runtime.dice,
            lambda: self.id,
            patience=options.patience,
            paid_patience=options.paid_patience,
        )
        self._runtime = replace(
            runtime,
            output_sink=self._stream_writer,
            usage_sink=self._usage_recorder,
            lanes=self._lanes,
            lose=self._drop,
        )
        self._settler = Settler(
            self._runtime, self._usage_recorder, options.limits, self
        )
        self._watching = Loop("worker-queues", self._watch_queues, every=options.poll)
        self._unsubscribe: Callable[[], None] | None = None

    async def start(self) -> None:
        """Register the worker and start to claim."""
        policies = tuple(self._runtime.registry.policies.values())
        try:
            if policies:
                await self._runtime.store.declare(policies)
            if self._runtime.registry.lanes:
                lanes = tuple(self._runtime.registry.lanes.values())
                await self._runtime.store.declare_lanes(lanes)
                self._warn_of_idle(lanes)
            await self._enlist()
        except (Exception, asyncio.CancelledError):
            await self._heartbeat.stop()
            raise
        self._unsubscribe = self._runtime.notifier.listen(self._hear)
        if self._intake is not None:
            claim_planner = self._claim_planner
            self._intake.start(
                claim_planner.queues,
                self._room,
                claim_planner.has_limits,
                self._look_again,
                free=lambda: self._free,
            )
        self._claiming = asyncio.create_task(
            supervised("worker-claim", self._claim_loop), name="worker-claim"
        )
        self._settler.start()
        self._checking.start()
        self._stream_writer.start()
        self._usage_recorder.start()
        self._watching.start()

    def _warn_of_idle(self, lanes: Sequence[Lane]) -> None:
        """Log which lanes no model call uses with the configured providers."""
        providers = self._runtime.providers
        chain = () if providers is None else providers.chain
        paced = [(p.name, p.credential) for p in chain if p.is_paced]
        of_apps = () if providers is None else providers.lanes.values()
        for lane in lanes:
            if lane.name not in of_apps and not is_reachable(lane, paced):
                log.warning("no provider uses this lane", lane=lane.name)

    async def stop(self, grace: float) -> bool:
        """
        Stop claiming, let handlers finish for `grace` seconds, hand back the rest.

        Return whether everything finished in time.
        """
        self._is_stopping = True
        self._wake.set()
        try:
            if self._claiming is not None:
                await self._claiming
            if self._intake is not None:
                await self._intake.stop()
            finished = await self._finished(grace)
        except (Exception, asyncio.CancelledError):
            await self._part()
            raise
        finished = await self._part() and finished
        log.info("worker stopped", worker=self.id, state="done" if finished else "cut")
        return finished

    @property
    def running(self) -> int:
        """The number of running handlers."""
        return len(self._attempts)

    def _current(self) -> Claim | None:
        """
        Return the job whose handler the event loop runs at the moment.

        Any thread may call this. Tasks that handlers start are not known.
        """
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        attempts = tuple(self._attempts)
        return next((each.claim for each in attempts if each.task is task), None)

    async def _enlist(self) -> None:
        worker = f"w_{self._runtime.dice.token()}"
        info = WorkerInfo(
            id=worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            slots=self._options.slots,
            queues=self._claim_planner.queues,
            started_at=self._runtime.clock.now(),
            draining=self._is_draining,
        )
        await self._runtime.store.enlist(info)
        self.id = worker
        self._is_lost = False
        self._heartbeat.start(worker)
        log.info(
            "worker started",
            worker=worker,
            slots=info.slots,
            queues=telemetry.told(info.queues),
        )

    def _hear(self, what: Notification) -> None:
        if what & Notification.WORK:
            self._claim_planner.notify()
            self._wake.set()
        if what & Notification.CANCELLED:
            self._checking.poke()

    def _hear_lost(self, worker: str) -> None:
        """Note, from any thread, that the lease is lost."""
        with suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._lose, worker)

    def _lose(self, worker: str) -> None:
        if worker == self.id:
            self._is_lost = True
            self._wake.set()

    async def _claim_loop(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            try:
                await self._claim()
            except WorkerLost:
                self._lose(self.id)
            except StoreUnavailable as error:
                log.warning("claim failed", worker=self.id, code=error.code)
                self._claim_planner.may_have_work, self._is_in_doubt = False, True
            except Exception as error:  # noqa: BLE001 - the loop must not end silently
                kind = type(error).__name__
                log.error("claim failed", worker=self.id, error_type=kind)
                self._claim_planner.may_have_work, self._is_in_doubt = False, True
            await self._pause()

    async def _claim(self) -> None:
        """Claim as many jobs as there is capacity for."""
        if self._is_lost:
            await self._start_over()
        if self._is_in_doubt:
            await self._give_back()
        if self._intake is not None:
            self._intake.resume()
        if self._free <= 0 or not self._claim_planner.may_have_work:
            return
        claim_requests = self._claim_planner.claim_requests(self._free)
        if not claim_requests:
            return
        claims = await self._take(claim_requests)
        self._runtime.faults.hit("worker.claimed")
        self._claim_planner.got(claim_requests, [claim.queue for claim in claims])
        begun = await self._keep_apart(claims)
        now = self._runtime.clock.now()
        for claim in begun:
            self._begin(claim, now)
        telemetry.started(begun, now)

    def _begin(self, claim: Claim, now: Instant) -> None:
        """Start an attempt's task and timeout; if that fails, so has the attempt."""
        attempt = Attempt(claim, self._runtime.registry.get(claim.capability))
        self._attempts[attempt] = None
        try:
            if attempt.capability is not None:
                seconds = attempt.capability.timeout.total_seconds()
                if claim.deadline is not None:
                    seconds = min(seconds, max(0.0, (claim.deadline - now) / 1000))
                self._timeouts.add(attempt, seconds)
            else:
                attempt.unknown_wait = self._unknown_jobs.wait(claim)
                self._tell_unknown(claim)
            attempt.task = self._loop.create_task(self._run(attempt))
        except Exception as error:  # noqa: BLE001 - one job must not block the others
            del self._attempts[attempt]
            kind = type(error).__name__
            log.error("attempt not started", job_id=claim.id, error_type=kind)
            why = readable(f"the attempt could not be started: {kind}: {error}")
            self._settler.add(attempt, Failed("UNEXPECTED", why))

    def _tell_unknown(self, claim: Claim) -> None:
        """Log that this worker returns jobs because it does not have a capability."""
        self._seldom.write(
            log.warning,
            "this worker does not have the capability; it returned the job: give "
            "each application its own queue or store",
            kind=claim.capability,
            worker=self.id,
            capability=claim.capability,
            queue=claim.queue,
            job_id=claim.id,
        )

    async def _run(self, attempt: Attempt) -> None:
        """Run an attempt and settle its outcome."""
        outcome = None
        try:
            outcome = await attempt.run(self._runtime)
        finally:
            self._timeouts.discard(attempt)
            self._attempts.pop(attempt, None)
            self._settle(attempt, outcome)

    def _settle(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Queue the outcome for storage, and claim again if that frees capacity."""
        if outcome is None and attempt.interruption is not Interruption.LOST:
            outcome = Failed("UNEXPECTED", "the attempt ended without an outcome")
        if outcome is None:
            telemetry.stale_completions.inc()
            self._settler.lose(attempt)
            if self._claim_planner.has_limits(attempt.claim.queue):
                self._look_again()
        else:
            self._settler.add(attempt, outcome)
        if self._claim_planner.may_have_work or self._is_stopping:
            self._wake.set()
        if self._intake is not None:
            self._intake.look()
        if not self._attempts:
            self._idle.set()

    async def _keep_apart(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """
        Put off jobs on their last attempt until no other of them runs here.

        One of them may be the cause of lost workers and must not take the others with
        it.
        """
        limits = self._options.limits
        risky = [claim for claim in claims if is_last_chance(claim, limits)]
        if not risky:
            return claims
        runs_one = any(is_last_chance(a.claim, limits) for a in self._attempts)
        put_off = risky if runs_one else risky[1:]
        await self._runtime.store.settle([self._put_off(claim) for claim in put_off])
        self._runtime.notifier.notify(Notification.SCHEDULE | Notification.EVENTS)
        return [claim for claim in claims if claim not in put_off]

    def _put_off(self, claim: Claim) -> Settlement:
        change = transitions.keep_apart(
            claim,
            timedelta(seconds=self._options.beat),
            now=self._runtime.clock.now(),
            roll=self._runtime.dice.roll(),
        )
        return Settlement(claim.seq, claim.token, change)

    async def _take(self, claim_requests: Sequence[ClaimRequest]) -> Sequence[Claim]:
        """Claim jobs, and acknowledge the broker messages that were used."""
        runtime, intake = self._runtime, self._intake
        now, token = runtime.clock.now(), runtime.dice.token()
        if intake is None:
            return await runtime.store.claim(self.id, token, claim_requests, now=now)
        grip = intake.grip(claim_requests)
        try:
            claims = await runtime.store.claim(self.id, token, claim_requests, now=now)
        except BaseException:
            intake.spare(grip)
            raise
        intake.use(grip, claims)
        return claims

    @property
    def _free(self) -> int:
        """Return the free slots; an ended job holds its slot until it is settled."""
        if self._is_draining:
            return 0
        held = len(self._attempts) + self._settler.unsettled()
        return self._options.slots - held

    def _count(self, queue: str) -> int:
        running = sum(1 for attempt in self._attempts if attempt.claim.queue == queue)
        return running + self._settler.unsettled(queue)

    def _room(self, queue: str) -> int:
        """Return how many jobs of a queue could start."""
        return self._claim_planner.room(queue, self._free)

    async def _pause(self) -> None:
        """Wait for a notification, a free slot or the next poll."""
        if self._claim_planner.may_have_work and self._free > 0:
            return
        try:
            async with asyncio.timeout(self._options.poll):
                await self._wake.wait()
        except TimeoutError:
            self._claim_planner.notify()

    async def _start_over(self) -> None:
        """
        Register under a new id, and return the jobs of the old one.

        If no other worker took them meanwhile, as after an outage of the store, they
        continue elsewhere without counting as stalled.
        """
        former = self.id
        if self._former[-1:] != [former]:
            # Log this once: while the store is unavailable, this function is called
            # again and again.
            count = len(self._attempts)
            log.warning("worker lost its lease", worker=former, count=count)
            self._former.append(former)
        for attempt in self._attempts:
            attempt.interrupt(Interruption.LOST)
        await self._enlist()
        self._is_in_doubt = True

    async def _give_back(self) -> None:
        """Return jobs that the store says are held here but that do not run here."""
        coming = self._settler.coming
        while self._former:
            await self._give_back_of(self._former[0], coming)
            del self._former[0]
        await self._give_back_of(self.id, self._known())
        self._is_in_doubt = False
        self._claim_planner.notify()

    async def _give_back_of(
        self, worker: str, known: Collection[tuple[int, str]]
    ) -> None:
        store, running = self._runtime.store, JobFilter(state=JobState.RUNNING)
        for seq, token in await store.held(worker):
            if (seq, token) in known:
                continue
            for job in await store.jobs(running, before=seq + 1, limit=1):
                change = transitions.hand_back(job, now=self._runtime.clock.now())
                await store.settle([Settlement(seq, token, change)])

    def _known(self) -> set[tuple[int, str]]:
        """Return the `(seq, token)` of jobs that run here or are being settled."""
        known = {(a.claim.seq, a.claim.token) for a in self._attempts}
        return known | self._settler.coming

    def _drop(self, claim: Claim) -> None:
        """Interrupt the handler of a job that this worker no longer holds."""
        for attempt in self._attempts:
            if attempt.claim is claim:
                attempt.interrupt(Interruption.LOST)

    def _time_out(self, attempt: Attempt) -> None:
        if attempt.has_ended:
            return
        deadline = attempt.claim.deadline
        if deadline is not None and self._runtime.clock.now() >= deadline:
            attempt.interrupt(Interruption.EXPIRED)
        else:
            attempt.interrupt(Interruption.TIMED_OUT)
        self._loop.call_later(STUBBORN_SECONDS, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """Settle the attempt of a handler that ignores its interruption."""
        outcome = attempt.came_to()
        if attempt.has_ended or attempt not in self._attempts:
            return
        if outcome is not None:
            attempt.interruption = Interruption.LOST
            self._settler.add(attempt, outcome)

    async def _watch_queues(self) -> float | None:
        """Read the limits of queues; return when a rate window opens."""
        states = await self._runtime.store.queues()
        is_opened, seconds = self._claim_planner.learn(states)
        if is_opened:
            self._look_again()
        if any(s.untold for s in states if s.name in self._claim_planner.queues):
            for throttling in await self._runtime.store.throttlings():
                telemetry.throttled(throttling)
        return seconds

    def on_settled(self, batch: Sequence[Ended]) -> None:
        """Claim again if the settlements free capacity; called by the settler."""
        if self._claim_planner.limited and any(
            self._claim_planner.has_limits(attempt.claim.queue) for attempt, _ in batch
        ):
            self._look_again()
        elif self._claim_planner.may_have_work:
            self._wake.set()
        if self._intake is not None:
            self._intake.look()

    def on_settle_failed(self) -> None:
        """Before the next claim, check which jobs the store says are held here."""
        self._is_in_doubt = True

    def _look_again(self) -> None:
        self._claim_planner.notify()
        self._wake.set()
        if self._intake is not None:
            self._intake.look()

    async def _check_held(self) -> float | None:
        """
        Compare the jobs held in the store with the running ones.

        Interrupt handlers whose jobs were cancelled or rescued. Hand back jobs that do
        not run here if two checks in a row found them: a claim whose answer is on its
        way looks the same.
        """
        attempts = tuple(self._attempts)
        held = set(await self._runtime.store.held(self.id))
        for attempt in attempts:
            if (attempt.claim.seq, attempt.claim.token) not in held:
                attempt.interrupt(Interruption.LOST)
        unknown = held - self._known()
        if unknown & self._unknown:
            self._is_in_doubt = True
            self._wake.set()
        self._unknown = unknown
        await self._learn_draining()
        return None

    async def _learn_draining(self) -> None:
        """Read whether an operator told the worker to drain or to resume."""
        worker = self.id
        is_draining = await self._runtime.store.is_draining(worker)
        if is_draining is None or is_draining is self._is_draining:
            return
        self._is_draining = is_draining
        log.info("worker draining" if is_draining else "worker resumed", worker=worker)
        if not is_draining:
            self._look_again()

    async def _finished(self, grace: float) -> bool:
        """Wait until handlers have ended and are settled; return whether all have."""
        over_at = self._loop.time() + grace
        self._idle.clear()
        if self._attempts:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(over_at):
                    await self._idle.wait()
        if self._attempts:
            return False
        await self._settler.drain(max(over_at - self._loop.time(), 0.0))
        return True

    async def _part(self) -> bool:
        """
        Hand back unfinished jobs and sign off, even if the store is unavailable.

        Return whether every ended attempt was settled with its own outcome.
        """
        self._hand_back()
        try:
            is_settled = await self._settler.part()
        except (Exception, asyncio.CancelledError):
            await self._leave()
            raise
        await self._leave()
        return is_settled

    def _hand_back(self) -> None:
        """Hand back unfinished jobs at once, whatever their handlers do."""
        for attempt in tuple(self._attempts):
            self._settler.add(attempt, HandedBack())
            attempt.interrupt(Interruption.LOST)

    async def _leave(self) -> None:
        try:
            await self._checking.stop()
            await self._stream_writer.stop()
            await self._usage_recorder.stop()
            await self._lanes.close()
            await self._watching.stop()
            if self._intake is not None:
                await self._intake.stop()
        finally:  # otherwise the worker would keep its remaining jobs for ever
            if self._unsubscribe is not None:
                self._unsubscribe()
            await self._heartbeat.stop()
        with suppress(StoreUnavailable):
            await self._runtime.store.dismiss(self.id)
        self._runtime.notifier.notify(Notification.WORK | Notification.EVENTS)
