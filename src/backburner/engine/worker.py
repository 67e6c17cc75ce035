"""Claims jobs, runs their handlers and settles what came of them."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from backburner.domain import transitions
from backburner.domain.errors import CallerError, StoreUnavailable, readable
from backburner.domain.flow import NewStep
from backburner.domain.job import Claim, JobState
from backburner.domain.outcome import Failed, HandedBack, Outcome
from backburner.domain.retry import RetryPolicy
from backburner.domain.transitions import (
    SETTLEMENT_FAILED,
    Change,
    Limits,
    is_last_chance,
)
from backburner.engine import telemetry
from backburner.engine.booking import Booker
from backburner.engine.context import Submit
from backburner.engine.execution import Attempt, Interruption
from backburner.engine.flow import Planned
from backburner.engine.heartbeat import Heartbeat
from backburner.engine.lanes import PATIENCE, Lanes
from backburner.engine.loop import Loop
from backburner.engine.payloads import Payloads
from backburner.engine.registry import Registry
from backburner.engine.telling import Teller
from backburner.engine.timeouts import Timeouts
from backburner.engine.transaction import Transaction
from backburner.ports.bell import Bell, Ring
from backburner.ports.clock import Clock, Dice
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.prices import NoPrices, Prices
from backburner.ports.store import (
    JobFilter,
    Settlement,
    Store,
    Tx,
    Want,
    WorkerInfo,
    WorkerLost,
)

SETTLE_RETRY_SECONDS = 0.2
DRAIN_SECONDS = 5.0
STUBBORN_SECONDS = 5.0
"""How long a handler may take to give in to its interruption."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works."""

    slots: int = 100
    queues: Sequence[str] = ()
    """The queues it takes from, the first first; empty: those of its capabilities."""
    poll: float = 1.0
    """How often it looks by itself, should a wake-up be lost."""
    beat: float = 2.0
    patience: float = PATIENCE
    """For how many seconds a handler may wait for a lane where it is."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class House:
    """What a worker needs of the world."""

    store: Store
    bell: Bell
    clock: Clock
    dice: Dice
    faults: Faults
    registry: Registry
    submit: Submit
    wrap: Callable[[Tx, Claim], Transaction]
    """Give a store's transaction the shape that bodies get."""
    payloads: Payloads = field(default_factory=Payloads)
    plan: Callable[[Sequence[Planned], Claim], Sequence[NewStep]] | None = None
    """Check steps that a handler added to its flow."""
    touch: Callable[[Iterable[int]], None] | None = None
    """Have batches looked at in which something ended."""
    prices: Prices = field(default_factory=NoPrices)


class Worker:
    """One process's hands: any number of jobs at once, one lease for all of them."""

    def __init__(
        self,
        house: House,
        options: WorkerOptions,
        heartbeat: Callable[[Callable[[str], None]], Heartbeat],
    ) -> None:
        self.id = ""
        self._house = house
        self._options = options
        self._queues = tuple(options.queues or house.registry.served())
        self._loop = asyncio.get_running_loop()
        self._heartbeat = heartbeat(self._hear_lost)
        # In the order of arrival, so that a simulation can be replayed.
        self._attempts: dict[Attempt, None] = {}
        self._timeouts: Timeouts[Attempt] = Timeouts(self._time_out)
        self._outcomes: list[tuple[Attempt, Settlement]] = []
        self._in_flight: list[tuple[Attempt, Settlement]] = []
        self._rings = 0
        self._quiet = 0
        self._limited = set(house.registry.policies)
        self._closed: set[str] = set()
        self._may_have_work = True
        self._is_lost = False
        self._is_in_doubt = False
        self._is_stopping = False
        self._is_draining = False
        self._turn = 0
        self._wake = asyncio.Event()
        self._settling = asyncio.Event()
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._checking = Loop("worker-check", self._check_held, every=options.beat)
        self._teller = Teller(house.store, house.bell, house.clock)
        self._booker = Booker(house.store, house.prices, house.clock)
        self._lanes = Lanes(
            house.store,
            house.clock,
            house.dice,
            lambda: self.id,
            patience=options.patience,
        )
        self._watching = Loop("worker-queues", self._watch_queues, every=options.poll)
        self._deafen: Callable[[], None] | None = None

    async def start(self) -> None:
        """Enlist and begin to claim."""
        policies = tuple(self._house.registry.policies.values())
        try:
            if policies:
                await self._house.store.declare(policies)
            if self._house.registry.lanes:
                lanes = tuple(self._house.registry.lanes.values())
                await self._house.store.declare_lanes(lanes)
            await self._enlist()
        except (Exception, asyncio.CancelledError):
            await self._heartbeat.stop()
            raise
        self._deafen = self._house.bell.listen(self._hear)
        self._tasks = [
            asyncio.create_task(self._claim_loop(), name="worker-claim"),
            asyncio.create_task(self._settle_loop(), name="worker-settle"),
        ]
        self._checking.start()
        self._teller.start()
        self._booker.start()
        self._watching.start()

    async def stop(self, grace: float) -> bool:
        """
        Stop claiming, let handlers finish for `grace` seconds, hand back the rest.

        Return whether everything finished in time.
        """
        claiming, settling = self._tasks
        self._is_stopping = True
        self._wake.set()
        try:
            await claiming
            finished = await self._finished(grace)
        except (Exception, asyncio.CancelledError):
            await self._part(settling)
            raise
        await self._part(settling)
        log.info("worker stopped", worker=self.id, state="done" if finished else "cut")
        return finished

    @property
    def running(self) -> int:
        """How many handlers are at work."""
        return len(self._attempts)

    async def _enlist(self) -> None:
        worker = f"w_{self._house.dice.token()}"
        info = WorkerInfo(
            id=worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            slots=self._options.slots,
            queues=self._queues,
            started_at=self._house.clock.now(),
        )
        await self._house.store.enlist(info)
        self.id = worker
        self._is_lost = False
        self._heartbeat.start(worker)
        log.info(
            "worker started",
            worker=worker,
            slots=info.slots,
            queues=telemetry.told(info.queues),
        )

    def _hear(self, what: Ring) -> None:
        if what & Ring.WORK:
            self._rings += 1
            self._may_have_work = True
            self._wake.set()
        if what & Ring.CANCELLED:
            self._checking.poke()

    def _hear_lost(self, worker: str) -> None:
        """Be told, from any thread, that the lease is gone."""
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
                self._may_have_work, self._is_in_doubt = False, True
            except Exception as error:  # noqa: BLE001 - a dead loop is a silent fault
                kind = type(error).__name__
                log.error("claim failed", worker=self.id, error_type=kind)
                self._may_have_work, self._is_in_doubt = False, True
            await self._pause()

    async def _claim(self) -> None:
        """Take what there is room for."""
        if self._is_lost:
            await self._start_over()
        if self._is_in_doubt:
            await self._give_back()
        free = self._options.slots - len(self._attempts)
        if free <= 0 or not self._may_have_work:
            return
        queues = [queue for queue in self._queues if self._room(queue, free)]
        if not queues:
            self._may_have_work = False
            return
        rings, wants = self._rings, self._wants(queues, free)
        claims = await self._house.store.claim(
            self.id, self._house.dice.token(), wants, now=self._house.clock.now()
        )
        self._house.faults.hit("worker.claimed")
        if rings != self._rings or len(claims) >= min(want.limit for want in wants):
            self._quiet = 0
        else:
            self._hear_nothing(len(wants), len(queues))
        for claim in await self._keep_apart(claims):
            self._begin(claim)

    async def _keep_apart(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """
        Put jobs on their last chance off until none of them runs here, all but one.

        One of them may be what takes workers down: the others must not go with it.
        """
        limits = self._options.limits
        risky = [claim for claim in claims if is_last_chance(claim, limits)]
        if not risky:
            return claims
        runs_one = any(is_last_chance(a.claim, limits) for a in self._attempts)
        put_off = risky if runs_one else risky[1:]
        await self._house.store.settle([self._put_off(claim) for claim in put_off])
        self._house.bell.ring(Ring.SCHEDULE | Ring.EVENTS)
        return [claim for claim in claims if claim not in put_off]

    def _put_off(self, claim: Claim) -> Settlement:
        seconds = self._options.beat * (1 + self._house.dice.roll())
        change = transitions.keep_apart(
            claim, timedelta(seconds=seconds), now=self._house.clock.now()
        )
        return Settlement(claim.seq, claim.token, change)

    def _hear_nothing(self, asked: int, of: int) -> None:
        """Rest when every queue was asked in vain; few slots ask only some at once."""
        self._quiet += asked
        if self._quiet >= of:
            self._quiet = 0
            self._may_have_work = False

    def _wants(self, queues: Sequence[str], free: int) -> list[Want]:
        """Ask every queue, another one first each time, so that none starves."""
        self._turn = (self._turn + min(free, len(queues) - 1)) % len(queues)
        turned = (*queues[self._turn :], *queues[: self._turn])[:free]
        share = free // len(turned)
        return [Want(queue, self._room(queue, share)) for queue in turned]

    def _room(self, queue: str, share: int) -> int:
        """Return how much of a share the queue's limit on one worker leaves."""
        policy = self._house.registry.policies.get(queue)
        if policy is None or policy.per_worker is None:
            return share
        here = sum(1 for attempt in self._attempts if attempt.claim.queue == queue)
        return max(0, min(share, policy.per_worker - here))

    async def _pause(self) -> None:
        """Wait for a ring, a free slot or the poll."""
        if self._may_have_work and len(self._attempts) < self._options.slots:
            return
        try:
            async with asyncio.timeout(self._options.poll):
                await self._wake.wait()
        except TimeoutError:
            self._may_have_work = True

    async def _start_over(self) -> None:
        """Come back under a new name; what the old one held is others' now."""
        log.warning("worker lost its lease", worker=self.id, count=len(self._attempts))
        for attempt in self._attempts:
            attempt.interrupt(Interruption.LOST)
        await self._enlist()

    async def _give_back(self) -> None:
        """Return what the store says is held here and nobody here works on."""
        known = {(a.claim.seq, a.claim.token) for a in self._attempts}
        coming = (*self._outcomes, *self._in_flight)
        known |= {(outcome.seq, outcome.token) for _, outcome in coming}
        store, running = self._house.store, JobFilter(state=JobState.RUNNING)
        for seq, token in await store.held(self.id):
            if (seq, token) in known:
                continue
            for job in await store.jobs(running, before=seq + 1, limit=1):
                change = transitions.hand_back(job, now=self._house.clock.now())
                await store.settle([Settlement(seq, token, change)])
        self._is_in_doubt = False
        self._may_have_work = True

    def _begin(self, claim: Claim) -> None:
        attempt = Attempt(claim, self._house.registry.get(claim.capability))
        self._attempts[attempt] = None
        now = self._house.clock.now()
        telemetry.started(claim, now)
        if attempt.capability is not None:
            seconds = attempt.capability.timeout.total_seconds()
            if claim.deadline is not None:
                seconds = min(seconds, max(0.0, (claim.deadline - now) / 1000))
            attempt.seconds = seconds
            self._timeouts.add(attempt, seconds)
        attempt.task = self._loop.create_task(self._run(attempt))

    def _time_out(self, attempt: Attempt) -> None:
        deadline = attempt.claim.deadline
        if deadline is not None and self._house.clock.now() >= deadline:
            attempt.interrupt(Interruption.EXPIRED)
        else:
            attempt.interrupt(Interruption.TIMED_OUT)
        self._loop.call_later(STUBBORN_SECONDS, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """Settle for a handler that does not let itself be interrupted."""
        outcome = attempt.came_to()
        if attempt.has_ended or attempt not in self._attempts:
            return
        if outcome is not None:
            attempt.interruption = Interruption.LOST
            self._outcomes.append((attempt, self._settlement(attempt, outcome)))
            self._settling.set()

    async def _run(self, attempt: Attempt) -> None:
        house, outcome = self._house, None
        try:
            outcome = await attempt.run(
                self._teller,
                house.submit,
                house.payloads,
                self._booker,
                self._lanes,
            )
            if attempt.tab is not None:
                with suppress(asyncio.CancelledError):
                    await self._booker.ready()
            voice = attempt.voice
            if voice is not None and outcome is not None:
                self._timeouts.discard(attempt, attempt.seconds)
                outcome = await attempt.heard_out(voice, outcome)
        finally:
            self._timeouts.discard(attempt, attempt.seconds)
            self._attempts.pop(attempt, None)
            self._end(attempt, outcome)

    def _end(self, attempt: Attempt, outcome: Outcome | None) -> None:
        if outcome is None and attempt.interruption is not Interruption.LOST:
            outcome = Failed("UNEXPECTED", "its attempt ended without an outcome")
        if outcome is None:
            telemetry.stale_completions.inc()
            self._book_late(attempt)
            if attempt.claim.queue in self._limited:
                self._look_again()
        else:
            self._outcomes.append((attempt, self._settlement(attempt, outcome)))
            self._settling.set()
        if self._may_have_work or self._is_stopping:
            self._wake.set()
        if not self._attempts:
            self._idle.set()

    def _book_late(self, attempt: Attempt) -> None:
        """Book what was used by an attempt that no settlement speaks for."""
        if attempt.tab is not None:
            self._booker.lose(attempt.tab)

    def _settlement(self, attempt: Attempt, outcome: Outcome) -> Settlement:
        claim, context = attempt.claim, attempt.context
        change = self._decide(attempt, outcome)
        bodies = context.settlement_bodies if context is not None else ()
        added = context.added_steps if context is not None else ()
        usage = () if attempt.tab is None else self._booker.settle(attempt.tab)
        if not (bodies or added) or change.to is not JobState.SUCCEEDED:
            return Settlement(
                claim.seq,
                claim.token,
                change,
                link=claim.link,
                usage=usage,
                epoch=claim.events,
            )

        def body(tx: Tx) -> None:
            ours = self._house.wrap(tx, claim)
            for write in bodies:
                write(ours)
            if added and claim.flow is not None and self._house.plan is not None:
                tx.extend(claim.flow, self._house.plan(added, claim))
            attempt.has_submitted = ours.has_submitted

        def otherwise(error: Exception) -> Change:
            message = readable(f"{type(error).__name__}: {error}")
            is_retryable = not isinstance(error, CallerError) or error.retryable
            failed = Failed(SETTLEMENT_FAILED, message, retryable=is_retryable)
            return self._decide(attempt, failed)

        return Settlement(
            claim.seq,
            claim.token,
            change,
            body,
            otherwise,
            claim.link,
            usage,
            claim.events,
        )

    def _decide(self, attempt: Attempt, outcome: Outcome) -> Change:
        claim, capability = attempt.claim, attempt.capability
        backoff = timedelta()
        if isinstance(outcome, Failed):
            policy = capability.retry if capability is not None else RetryPolicy()
            backoff = policy.delay(claim.attempt, self._house.dice.roll())
        return transitions.settle(
            claim,
            outcome,
            now=self._house.clock.now(),
            backoff=backoff,
            limits=self._options.limits,
        )

    async def _settle_loop(self) -> None:
        while self._outcomes or not self._is_draining:
            await self._settling.wait()
            self._settling.clear()
            batch, self._outcomes = self._outcomes, []
            if batch:
                self._house.faults.hit("worker.settling")
                self._in_flight = batch
                await self._settle(batch)
                self._in_flight = []

    async def _settle(self, batch: Sequence[tuple[Attempt, Settlement]]) -> None:
        try:
            applied = await self._house.store.settle([s for _, s in batch])
        except StoreUnavailable as error:
            # The outcome is kept and tried again for as long as the lease holds.
            log.warning("settle failed", worker=self.id, code=error.code)
            self._outcomes = [*batch, *self._outcomes]
            self._loop.call_later(SETTLE_RETRY_SECONDS, self._settling.set)
        except Exception as error:  # noqa: BLE001 - one bad outcome must not hold the rest
            kind = type(error).__name__
            log.error("settle failed", worker=self.id, error_type=kind)
            await self._settle_singly(batch)
        else:
            self._house.faults.hit("worker.settled")
            self._tell(batch, applied)

    async def _settle_singly(self, batch: Sequence[tuple[Attempt, Settlement]]) -> None:
        for attempt, settlement in batch:
            if len(batch) > 1:
                await self._settle([(attempt, settlement)])
                continue
            problem = Failed(
                SETTLEMENT_FAILED, "its outcome could not be stored", False
            )
            plain = Settlement(
                settlement.seq,
                settlement.token,
                self._decide(attempt, problem),
                link=settlement.link,
            )
            self._book_late(attempt)
            try:
                self._tell([(attempt, plain)], await self._house.store.settle([plain]))
            except Exception as error:  # noqa: BLE001 - the loop must go on
                kind = type(error).__name__
                log.error("settle failed", worker=self.id, error_type=kind)
                self._is_in_doubt = True

    async def _watch_queues(self) -> float | None:
        """Learn which queues have limits; look again when a window opens."""
        states = await self._house.store.queues()
        ours = [state for state in states if state.name in self._queues]
        self._limited = {state.name for state in ours if state.is_limited}
        closed = {s.name: s.opens_in for s in ours if s.opens_in is not None}
        if self._closed - closed.keys():
            self._look_again()
        self._closed = set(closed)
        if any(state.untold for state in ours):
            for throttling in await self._house.store.throttlings():
                telemetry.throttled(throttling)
        return min(closed.values()) / 1000 if closed else None

    def _look_again(self) -> None:
        self._may_have_work = True
        self._wake.set()

    def _tell(
        self,
        batch: Sequence[tuple[Attempt, Settlement]],
        applied: Sequence[Change | None],
    ) -> None:
        for (attempt, _), change in zip(batch, applied, strict=True):
            if change is None:
                self._book_late(attempt)
        ends = [
            (attempt.claim, change)
            for (attempt, _), change in zip(batch, applied, strict=True)
            if change is not None
        ]
        telemetry.stale_completions.inc(len(batch) - len(ends))
        telemetry.settled(ends)
        rings = Ring.EVENTS
        if any(attempt.has_submitted for attempt, _ in batch):
            rings |= Ring.WORK | Ring.SCHEDULE
        if any(attempt.claim.link is not None for attempt, _ in batch):
            rings |= Ring.WORK
        if self._house.touch is not None:
            over = {claim.batch for claim, change in ends if change.to.is_final}
            self._house.touch(number for number in over if number is not None)
        for state in {change.to for _, change in ends}:
            rings |= _RINGS.get(state, Ring.EVENTS)
        self._house.bell.ring(rings)
        if self._limited and any(a.claim.queue in self._limited for a, _ in batch):
            self._look_again()

    async def _check_held(self) -> float | None:
        """Interrupt handlers whose jobs were taken away: cancelled, or rescued."""
        attempts = tuple(self._attempts)
        if attempts:
            held = set(await self._house.store.held(self.id))
            for attempt in attempts:
                if (attempt.claim.seq, attempt.claim.token) not in held:
                    attempt.interrupt(Interruption.LOST)
        return None

    async def _finished(self, grace: float) -> bool:
        self._idle.clear()
        if self._attempts:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._idle.wait()
        return not self._attempts

    async def _part(self, settling: asyncio.Task[None]) -> None:
        """Hand back what is left, tell it, and go; go also if it cannot be told."""
        self._hand_back()
        try:
            await self._drain(settling)
        except (Exception, asyncio.CancelledError):
            await self._leave()
            raise
        await self._leave()

    def _hand_back(self) -> None:
        """Give away at once what is not finished, however its handler takes it."""
        for attempt in tuple(self._attempts):
            settlement = self._settlement(attempt, HandedBack())
            self._outcomes.append((attempt, settlement))
            attempt.interrupt(Interruption.LOST)

    async def _drain(self, settling: asyncio.Task[None]) -> None:
        self._is_draining = True
        self._settling.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await settling

    async def _leave(self) -> None:
        await self._checking.stop()
        await self._teller.stop()
        await self._booker.stop()
        await self._lanes.close()
        await self._watching.stop()
        await self._heartbeat.stop()
        if self._deafen is not None:
            self._deafen()
        with suppress(StoreUnavailable):
            await self._house.store.dismiss(self.id)
        self._house.bell.ring(Ring.WORK | Ring.EVENTS)


_RINGS = {
    JobState.QUEUED: Ring.WORK | Ring.EVENTS,
    JobState.SCHEDULED: Ring.SCHEDULE | Ring.EVENTS,
}
