"""Stores the outcomes of attempts in batches, with retries."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Protocol, TypeAlias

from backburner.domain.errors import (
    MAX_MESSAGE,
    CallerError,
    StoreUnavailable,
    readable,
)
from backburner.domain.jobs import transitions
from backburner.domain.jobs.completion import callback_of
from backburner.domain.jobs.job import Claim, JobState, NewJob
from backburner.domain.jobs.outcome import Done, Failed, HandedBack, Outcome, Suspension
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.jobs.transitions import SETTLEMENT_FAILED, Change, Limits
from backburner.domain.webhooks.delivery import Ended as Subject
from backburner.domain.webhooks.delivery import question_delivery
from backburner.engine.flow import Planned, anyway
from backburner.engine.loop import supervised
from backburner.engine.models.usage import UsageRecorder
from backburner.engine.observability import telemetry
from backburner.engine.run.attempt import Attempt
from backburner.engine.run.runtime import Runtime
from backburner.engine.seldom import Seldom
from backburner.engine.transaction import Transaction
from backburner.ports.log import log
from backburner.ports.notifier import Notification
from backburner.ports.store.jobs import Settlement
from backburner.ports.store.transactions import Tx

SETTLE_RETRY_SECONDS = 0.2
DRAIN_SECONDS = 3.0
MOST_WHY = 500
"""Maximum length of the message that says why steps were not stored."""

Ended: TypeAlias = tuple[Attempt, Settlement]
Body: TypeAlias = Callable[[Transaction], None]
Steps: TypeAlias = Sequence[Planned]


class SettlingWorker(Protocol):
    """The part of the worker that the settler uses."""

    id: str

    def on_settled(self, batch: Sequence[Ended]) -> None:
        """Note which attempts were settled."""
        ...

    def on_settle_failed(self) -> None:
        """Note that an outcome could not be stored, so no attempt holds its job."""
        ...


class _SignalledMeanwhile(Exception):
    """A signal came between a run's last check and its settlement."""


class Settler:
    """Stores the outcomes of one worker's attempts."""

    def __init__(
        self,
        runtime: Runtime,
        usage_recorder: UsageRecorder,
        limits: Limits,
        worker: SettlingWorker,
    ) -> None:
        """Create it; `worker` is notified of settled attempts."""
        self._runtime = runtime
        self._usage_recorder = usage_recorder
        self._limits = limits
        self._worker = worker
        self._seldom = Seldom()
        self._outcomes: list[Ended] = []
        self._in_flight: list[Ended] = []
        self._holding: Sequence[Ended] = ()
        """Settlements that are being stored and still occupy a slot."""
        self._wake = asyncio.Event()
        self._is_draining = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task."""
        self._task = asyncio.create_task(
            supervised("worker-settle", self._run), name="worker-settle"
        )

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        """Queue an outcome for storage; an invalid one becomes a failure."""
        try:
            settlement = self._settlement(attempt, outcome)
        except Exception as error:  # noqa: BLE001 - a retry policy may raise anything
            kind = type(error).__name__
            log.error("settle failed", job_id=attempt.claim.id, error_type=kind)
            settlement = self._refused(attempt, f"the outcome is not valid: {kind}")
            self.lose(attempt)
        self._outcomes.append((attempt, settlement))
        self._wake.set()

    def lose(self, attempt: Attempt) -> None:
        """Record the usage of an attempt that has no settlement."""
        if attempt.usage_log is not None:
            self._usage_recorder.lose(attempt.usage_log)

    def unsettled(self, queue: str | None = None) -> int:
        """
        Return how many ended jobs still occupy a slot.

        A job occupies its slot until its settlement is sent to the store; if the
        settlement has a body, until the store has answered. Bodies may take long, the
        rest is one short write. In a store that applies writes and claims in order, a
        slot is free as soon as the settlement is sent.
        """
        if queue is None:
            return len(self._outcomes) + len(self._holding)
        held = (*self._outcomes, *self._holding)
        return sum(1 for attempt, _ in held if attempt.claim.queue == queue)

    @property
    def coming(self) -> set[tuple[int, str]]:
        """The `(seq, token)` of attempts that are not settled yet."""
        both = (*self._outcomes, *self._in_flight)
        return {(settlement.seq, settlement.token) for _, settlement in both}

    async def drain(self, seconds: float) -> bool:
        """Settle what is left within `seconds`; return whether nothing is left."""
        self._is_draining = True
        self._wake.set()
        if self._task is None:
            return True
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        return bool(done)

    async def part(self) -> bool:
        """
        Settle what is left within a few seconds; return whether that succeeded.

        Jobs whose settlements have bodies are handed back, because bodies may take
        long. So are settlements in flight if the store does not answer.
        """
        is_whole = all(settlement.body is None for _, settlement in self._outcomes)
        self._outcomes = [*map(self._handed_back, self._outcomes)]
        if await self.drain(DRAIN_SECONDS) or self._task is None:
            return is_whole
        self._task.cancel()
        await asyncio.wait({self._task})
        left = (*self._in_flight, *self._outcomes)
        self._in_flight, self._holding = [], ()
        self._outcomes = [*map(self._handed_back, left)]
        self.start()
        await self.drain(DRAIN_SECONDS)
        return False

    def _handed_back(self, ended: Ended) -> Ended:
        attempt, settlement = ended
        if settlement.body is None:
            return ended
        change = self.decide(attempt, HandedBack())
        plain = settlement._replace(change=change, body=None, otherwise=None)
        return attempt, plain

    async def _run(self) -> None:
        while self._outcomes or not self._is_draining:
            await self._wake.wait()
            self._wake.clear()
            batch, self._outcomes = self._outcomes, []
            if batch:
                self._runtime.faults.hit("worker.settling")
                self._in_flight = self._holding = batch
                try:
                    await self._settle(batch)
                except Exception:
                    self._outcomes = [*batch, *self._outcomes]
                    self._wake.set()
                    raise
                self._in_flight, self._holding = [], ()

    def _held_while_sent(self, batch: Sequence[Ended]) -> Sequence[Ended]:
        if self._runtime.store.applies_in_order:
            return ()
        return [ended for ended in batch if ended[1].body is not None]

    async def _settle(self, batch: Sequence[Ended]) -> None:
        try:
            await self._book_first(batch)
            self._holding = self._held_while_sent(batch)
            for attempt, _ in batch:
                attempt.is_put_off = False
            applied = await self._runtime.store.settle([s for _, s in batch])
        except StoreUnavailable as error:
            # Keep the outcome and try again for as long as the lease holds.
            self._seldom.write(
                log.warning, "settle failed", worker=self._worker.id, code=error.code
            )
            self._settle_later(batch)
        except Exception as error:  # noqa: BLE001 - one outcome must not block all
            kind = type(error).__name__
            log.error("settle failed", worker=self._worker.id, error_type=kind)
            await self._settle_singly(batch)
        else:
            self._runtime.faults.hit("worker.settled")
            self._take_answers(batch, applied)

    def _take_answers(
        self, batch: Sequence[Ended], applied: Sequence[Change | None]
    ) -> None:
        """Report what was settled, and retry what was put off."""
        answers = zip(batch, applied, strict=True)
        put_off = [e for e, change in answers if change is None and e[0].is_put_off]
        if not put_off:
            self._tell(batch, applied)
            return
        self._seldom.write(
            log.warning, "settle put off: steps not stored", worker=self._worker.id
        )
        self._settle_later(put_off)
        answers = zip(batch, applied, strict=True)
        settled = [answer for answer in answers if answer[0] not in put_off]
        if settled:
            self._tell([e for e, _ in settled], [change for _, change in settled])

    def _settle_later(self, batch: Sequence[Ended]) -> None:
        self._outcomes = [*batch, *self._outcomes]
        asyncio.get_running_loop().call_later(SETTLE_RETRY_SECONDS, self._wake.set)

    async def _settle_singly(self, batch: Sequence[Ended]) -> None:
        for attempt, settlement in batch:
            if len(batch) > 1:
                await self._settle([(attempt, settlement)])
                continue
            plain = self._refused(attempt, "the outcome could not be stored")
            self.lose(attempt)
            try:
                self._tell(
                    [(attempt, plain)], await self._runtime.store.settle([plain])
                )
            except Exception as error:  # noqa: BLE001 - the loop must go on
                kind = type(error).__name__
                log.error("settle failed", worker=self._worker.id, error_type=kind)
                self._worker.on_settle_failed()

    async def _book_first(self, batch: Sequence[Ended]) -> None:
        """Record usage early for settlements with a body, which may take long."""
        usage_logs = [
            a.usage_log
            for a, s in batch
            if s.body is not None and a.usage_log is not None
        ]
        if any(usage_log.is_open for usage_log in usage_logs):
            await self._usage_recorder.book(
                [usage_log for usage_log in usage_logs if usage_log.is_open]
            )

    def _refused(self, attempt: Attempt, why: str) -> Settlement:
        """Return a settlement that fails a job whose own outcome cannot be stored."""
        claim, problem = attempt.claim, Failed(SETTLEMENT_FAILED, why, retryable=False)
        change = transitions.settle(
            claim,
            problem,
            now=self._runtime.clock.now(),
            backoff=timedelta(),
            limits=self._limits,
        )
        return Settlement(
            claim.seq, claim.token, change, consequences=claim.consequences
        )

    def _tell(
        self,
        batch: Sequence[Ended],
        applied: Sequence[Change | None],
    ) -> None:
        """Report settled attempts; an error here does not undo the settlement."""
        try:
            self._tell_all(batch, applied)
        except Exception as error:  # noqa: BLE001 - settling again would not help
            kind = type(error).__name__
            log.error("settled, not announced", worker=self._worker.id, error_type=kind)

    def _tell_all(
        self,
        batch: Sequence[Ended],
        applied: Sequence[Change | None],
    ) -> None:
        ends: list[tuple[Claim, Change]] = []
        for (attempt, settlement), change in zip(batch, applied, strict=True):
            if change is None:
                self.lose(attempt)
                continue
            ends.append((attempt.claim, change))
            if settlement.usage and attempt.usage_log is not None:
                self._usage_recorder.settled(attempt.usage_log)
        telemetry.stale_completions.inc(len(batch) - len(ends))
        telemetry.settled(ends)
        notifications = Notification.EVENTS
        if any(attempt.has_submitted for attempt, _ in batch):
            notifications |= Notification.WORK | Notification.SCHEDULE
        if any(settlement.consequences is not None for _, settlement in batch):
            notifications |= Notification.WORK
        over = {claim.batch for claim, change in ends if change.to.is_final}
        touch = self._runtime.engine.touch_batches
        touch(number for number in over if number is not None)
        touch(n for attempt, _ in batch for n in attempt.filled)
        for state in {change.to for _, change in ends}:
            notifications |= _NOTIFICATIONS.get(state, Notification.EVENTS)
        self._on_jobs_failed(ends)
        self._runtime.notifier.notify(notifications)
        self._worker.on_settled(batch)

    def _on_jobs_failed(self, ends: Sequence[tuple[Claim, Change]]) -> None:
        if any(change.to is JobState.FAILED for _, change in ends):
            self._runtime.on_job_failed()

    def _settlement(self, attempt: Attempt, outcome: Outcome) -> Settlement:
        claim = attempt.claim
        change = self.decide(attempt, outcome)
        bodies, added = _brought(attempt, change)
        usage = (
            ()
            if attempt.usage_log is None
            else self._usage_recorder.settle(attempt.usage_log)
        )
        plain = Settlement(
            claim.seq,
            claim.token,
            change,
            consequences=claim.consequences,
            usage=usage,
            epoch=claim.events,
        )
        if isinstance(outcome, Suspension) and change.to is JobState.WAITING:
            return self._waiting(attempt, plain, outcome)
        if not (bodies or added):
            return plain

        def body(tx: Tx) -> None:
            ours = self._runtime.engine.wrap(tx, claim)
            for write in bodies:
                write(ours)
            if added and claim.flow is not None:
                steps = self._runtime.engine.plan_steps(added, claim)
                tx.extend(claim.flow, steps)
            attempt.has_submitted = ours.has_submitted
            attempt.filled = ours.filled

        def otherwise(error: Exception) -> Change | None:
            if change.to is not JobState.SUCCEEDED:
                return _without_steps(attempt, change, error)
            message = readable(f"{type(error).__name__}: {error}")
            is_retryable = not isinstance(error, CallerError) or error.retryable
            failed = Failed(SETTLEMENT_FAILED, message, retryable=is_retryable)
            return self.decide(attempt, failed)

        return plain._replace(body=body, otherwise=otherwise)

    def _waiting(
        self, attempt: Attempt, plain: Settlement, suspension: Suspension
    ) -> Settlement:
        """Return the settlement of a job that waits, unless it was signalled."""
        claim, change = attempt.claim, plain.change
        webhooks = _tellings(claim, change, suspension.questions)

        def body(tx: Tx) -> None:
            # The job's row is locked: a signal is either stored by now or will find the
            # job waiting.
            self._runtime.faults.hit("wait.settling")
            if tx.has_signal(claim.seq, suspension.names):
                raise _SignalledMeanwhile
            if webhooks:
                tx.submit(webhooks)
                attempt.has_submitted = True

        def otherwise(error: Exception) -> Change | None:
            if not isinstance(error, _SignalledMeanwhile):
                return transitions.hand_back(claim, now=change.at)
            name = (change.wait and change.wait.name) or ""
            return transitions.resume(claim, name, now=change.at)

        return plain._replace(body=body, otherwise=otherwise)

    def decide(self, attempt: Attempt, outcome: Outcome) -> Change:
        """Return the change of a job that an outcome causes."""
        if isinstance(outcome, Done):
            return transitions.succeed(outcome, now=self._runtime.clock.now())
        claim, capability = attempt.claim, attempt.capability
        backoff = timedelta()
        if isinstance(outcome, Failed):
            policy = RetryPolicy()
            if capability is not None:
                policy = self._runtime.registry.retry_of(capability)
            backoff = policy.delay(claim.attempt, self._runtime.dice.roll())
        return transitions.settle(
            claim,
            outcome,
            now=self._runtime.clock.now(),
            backoff=backoff,
            limits=self._limits_of(attempt),
        )

    def _limits_of(self, attempt: Attempt) -> Limits:
        """Return the limits on putting a job back; its capability may set its own."""
        limits, capability = self._limits, attempt.capability
        if capability is None or capability.patience is None:
            return limits
        return limits._replace(throttled=capability.patience)


def _tellings(claim: Claim, change: Change, questions: Sequence[str]) -> list[NewJob]:
    """Return the webhooks that report questions, if the job has a callback."""
    callback = callback_of(claim.callback)
    if callback is None:
        return []
    asking = Subject(
        id=claim.id,
        tenant=claim.tenant,
        user=claim.user,
        generation=claim.generation,
        state=change.to,
        callback=callback,
        request_id=claim.request_id,
        traceparent=claim.traceparent,
    )
    return [question_delivery(asking, name, change.at) for name in questions]


def _without_steps(
    attempt: Attempt, failure: Change, error: Exception
) -> Change | None:
    """Return a failure that says why its steps were not stored; `None`: try again."""
    if isinstance(error, StoreUnavailable):
        attempt.is_put_off = True
        return None
    kind = type(error).__name__
    log.error("steps not stored", job_id=attempt.claim.id, error_type=kind)
    problem = failure.error
    assert problem is not None  # noqa: S101 - tells the type checker
    why = readable(f"; the steps it added were not stored: {kind}: {error}")[:MOST_WHY]
    message = problem.message[: MAX_MESSAGE - len(why)] + why
    return failure._replace(error=replace(problem, message=message))


def _brought(attempt: Attempt, change: Change) -> tuple[Sequence[Body], Steps]:
    """Return what is written with a job's end, in success or failure."""
    context = attempt.context
    if context is None:
        return (), ()
    if change.to is JobState.SUCCEEDED:
        return context.brought
    if change.to is JobState.FAILED:
        return (), anyway(context.added_steps, attempt.claim.step or "")
    return (), ()


_NOTIFICATIONS = {
    JobState.QUEUED: Notification.WORK | Notification.EVENTS,
    JobState.SCHEDULED: Notification.SCHEDULE | Notification.EVENTS,
}
