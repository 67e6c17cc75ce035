"""Settles what came of attempts, in batches, for as long as it takes."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeAlias

from backburner.domain import transitions
from backburner.domain.errors import CallerError, StoreUnavailable, readable
from backburner.domain.job import Claim, JobState
from backburner.domain.outcome import Failed, Outcome
from backburner.domain.retry import RetryPolicy
from backburner.domain.transitions import SETTLEMENT_FAILED, Change, Limits
from backburner.engine import telemetry
from backburner.engine.booking import Booker
from backburner.engine.execution import Attempt
from backburner.engine.flow import Planned, anyway
from backburner.engine.house import House
from backburner.engine.transaction import Transaction
from backburner.ports.bell import Ring
from backburner.ports.log import log
from backburner.ports.store import Settlement, Tx

SETTLE_RETRY_SECONDS = 0.2
DRAIN_SECONDS = 5.0

Ended: TypeAlias = tuple[Attempt, Settlement]
Body: TypeAlias = Callable[[Transaction], None]
Steps: TypeAlias = Sequence[Planned]


class Settler:
    """One worker's outcomes, on their way to the store."""

    def __init__(
        self,
        house: House,
        booker: Booker,
        limits: Limits,
        *,
        worker: Callable[[], str],
        settled: Callable[[Sequence[Ended]], None],
        doubt: Callable[[], None],
    ) -> None:
        """Take whom to tell of what was settled, and that nobody knows of something."""
        self._house = house
        self._booker = booker
        self._limits = limits
        self._worker = worker
        self._settled = settled
        self._doubt = doubt
        self._outcomes: list[Ended] = []
        self._in_flight: list[Ended] = []
        self._wake = asyncio.Event()
        self._is_draining = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="worker-settle")

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        """Have an outcome stored."""
        self._outcomes.append((attempt, self._settlement(attempt, outcome)))
        self._wake.set()

    def lose(self, attempt: Attempt) -> None:
        """Book what was used by an attempt that no settlement speaks for."""
        if attempt.tab is not None:
            self._booker.lose(attempt.tab)

    @property
    def coming(self) -> set[tuple[int, str]]:
        """The `(seq, token)` of what is not settled yet."""
        both = (*self._outcomes, *self._in_flight)
        return {(settlement.seq, settlement.token) for _, settlement in both}

    async def drain(self) -> None:
        """Settle what is left, and end; end also if that takes too long."""
        self._is_draining = True
        self._wake.set()
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._task

    async def _run(self) -> None:
        while self._outcomes or not self._is_draining:
            await self._wake.wait()
            self._wake.clear()
            batch, self._outcomes = self._outcomes, []
            if batch:
                self._house.faults.hit("worker.settling")
                self._in_flight = batch
                await self._settle(batch)
                self._in_flight = []

    async def _settle(self, batch: Sequence[Ended]) -> None:
        try:
            applied = await self._house.store.settle([s for _, s in batch])
        except StoreUnavailable as error:
            # The outcome is kept and tried again for as long as the lease holds.
            log.warning("settle failed", worker=self._worker(), code=error.code)
            self._outcomes = [*batch, *self._outcomes]
            asyncio.get_running_loop().call_later(SETTLE_RETRY_SECONDS, self._wake.set)
        except Exception as error:  # noqa: BLE001 - one bad outcome must not hold the rest
            kind = type(error).__name__
            log.error("settle failed", worker=self._worker(), error_type=kind)
            await self._settle_singly(batch)
        else:
            self._house.faults.hit("worker.settled")
            self._tell(batch, applied)

    async def _settle_singly(self, batch: Sequence[Ended]) -> None:
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
                self.decide(attempt, problem),
                link=settlement.link,
            )
            self.lose(attempt)
            try:
                self._tell([(attempt, plain)], await self._house.store.settle([plain]))
            except Exception as error:  # noqa: BLE001 - the loop must go on
                kind = type(error).__name__
                log.error("settle failed", worker=self._worker(), error_type=kind)
                self._doubt()

    def _tell(
        self,
        batch: Sequence[Ended],
        applied: Sequence[Change | None],
    ) -> None:
        for (attempt, _), change in zip(batch, applied, strict=True):
            if change is None:
                self.lose(attempt)
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
        self._mourn(ends)
        self._house.bell.ring(rings)
        self._settled(batch)

    def _mourn(self, ends: Sequence[tuple[Claim, Change]]) -> None:
        if any(change.to is JobState.FAILED for _, change in ends):
            self._house.mourn()

    def _settlement(self, attempt: Attempt, outcome: Outcome) -> Settlement:
        claim = attempt.claim
        change = self.decide(attempt, outcome)
        bodies, added = _brought(attempt, change)
        usage = () if attempt.tab is None else self._booker.settle(attempt.tab)
        if not (bodies or added):
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
            if change.to is not JobState.SUCCEEDED:
                return change
            message = readable(f"{type(error).__name__}: {error}")
            is_retryable = not isinstance(error, CallerError) or error.retryable
            failed = Failed(SETTLEMENT_FAILED, message, retryable=is_retryable)
            return self.decide(attempt, failed)

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

    def decide(self, attempt: Attempt, outcome: Outcome) -> Change:
        """Say what an outcome means for its job."""
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
            limits=self._limits_of(attempt),
        )

    def _limits_of(self, attempt: Attempt) -> Limits:
        """Return how much a job may be put back: its capability may say less."""
        limits, capability = self._limits, attempt.capability
        if capability is None or capability.patience is None:
            return limits
        return limits._replace(throttled=min(capability.patience, limits.throttled))


def _brought(attempt: Attempt, change: Change) -> tuple[Sequence[Body], Steps]:
    """Return what is written with a job's end: what follows anyway, if it failed."""
    context = attempt.context
    if context is None:
        return (), ()
    if change.to is JobState.SUCCEEDED:
        return context.settlement_bodies, context.added_steps
    if change.to is JobState.FAILED:
        return (), anyway(context.added_steps, attempt.claim.step or "")
    return (), ()


_RINGS = {
    JobState.QUEUED: Ring.WORK | Ring.EVENTS,
    JobState.SCHEDULED: Ring.SCHEDULE | Ring.EVENTS,
}
