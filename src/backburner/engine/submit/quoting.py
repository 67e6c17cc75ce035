"""Quotes before a job is submitted, receipts after it is cancelled."""

from collections.abc import Sequence
from dataclasses import dataclass

from backburner.domain.costs.budget import Balance, Charge
from backburner.domain.costs.quote import Forecast, Prospect, forecast, quantile
from backburner.domain.costs.usage import NOTHING, Price
from backburner.domain.errors import TooManyWaiting
from backburner.domain.events.event import AttemptRecord
from backburner.domain.jobs.job import Instant, Job, NewJob
from backburner.domain.jobs.receipt import Receipt
from backburner.domain.queues.queue import QueueState
from backburner.engine.submit.estimates import at_most
from backburner.ports.clock import Clock
from backburner.ports.prices import Prices
from backburner.ports.store import Store
from backburner.ports.store.forecasts import Outlook
from backburner.ports.store.workers import WorkerInfo

MOST_LIKELY = 0.9
HISTORY = "history"
ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True)
class Quote:
    """The expected cost and waiting time of a job that is submitted now."""

    job: NewJob
    at: Instant
    tokens: int | None
    basis: str | None
    """`estimate`: given by the capability; `history`: nine in ten jobs used less."""
    price: Price
    ahead: int
    slots: int
    is_paused: bool
    forecast: Forecast
    room: Sequence[tuple[Charge, Balance]]


class Quoting:
    """Computes quotes and receipts; it writes nothing."""

    def __init__(self, *, store: Store, clock: Clock, prices: Prices) -> None:
        self._store = store
        self._clock = clock
        self._prices = prices

    async def quote(self, job: NewJob) -> Quote:
        """
        Return the quote of a prepared job that is not stored.

        Raises `TooManyWaiting` if a submit would: its share is at the queue's cap.
        """
        now = self._clock.now()
        outlook = await self._store.outlook(
            job.queue, job.capability, job.priority, now=now
        )
        workers = await self._store.workers()
        state = await self._state(job.queue)
        await self._check_cap(job, state)
        if job.model is not None:
            await self._prices.load()
        slots = _slots(workers, state, outlook.busy)
        tokens, basis, price = self._estimate(job, outlook)
        prospect = Prospect(
            ahead=outlook.ahead,
            ages=outlook.ages,
            slots=0 if state.paused else slots,
            past=outlook.past,
            pace=_pace(state),
            not_before=max(0, (job.run_at or now) - now, state.opens_in or 0),
        )
        return Quote(
            job=job,
            at=now,
            tokens=tokens,
            basis=basis,
            price=price,
            ahead=outlook.ahead,
            slots=slots,
            is_paused=state.paused,
            forecast=forecast(prospect, job.capability, job.queue),
            room=await self._store.room(job, now=now),
        )

    async def receipt(self, job: Job, attempts: Sequence[AttemptRecord]) -> Receipt:
        """Return what a cancelled job has used, and which of its data is kept."""
        spent = await self._store.spent([job.seq], with_late=False)
        closing = await self._store.closing(job)
        return Receipt(
            spent=spent.get(job.seq, NOTHING),
            tokens_released=closing.tokens,
            money_released=closing.money,
            text=closing.text,
            webhooks=closing.webhooks,
            runs=len(attempts),
        )

    async def _check_cap(self, job: NewJob, state: QueueState) -> None:
        if state.waiting is None:
            return
        depth = await self._store.crowd(job)
        if depth >= state.waiting:
            raise TooManyWaiting(job.queue, depth=depth, cap=state.waiting)

    async def _state(self, queue: str) -> QueueState:
        states = await self._store.queues()
        return next((s for s in states if s.name == queue), QueueState(queue))

    def _estimate(
        self, job: NewJob, outlook: Outlook
    ) -> tuple[int | None, str | None, Price]:
        if job.tokens is not None:
            return job.tokens, ESTIMATE, at_most(self._prices, job.model, job.tokens)
        if not outlook.uses:
            return None, None, Price()
        tokens = quantile([used for used, _ in outlook.uses], MOST_LIKELY)
        costs = [cost for _, cost in outlook.uses if cost is not None]
        if len(costs) < len(outlook.uses):
            return tokens, HISTORY, Price()
        return tokens, HISTORY, Price(quantile(costs, MOST_LIKELY), "as it was paid")


def _slots(workers: Sequence[WorkerInfo], state: QueueState, busy: int) -> int:
    """Return how many jobs of a queue may run concurrently."""
    serving = [
        worker.slots
        for worker in workers
        if state.name in worker.queues and not worker.draining
    ]
    if state.per_worker is not None:
        serving = [min(slots, state.per_worker) for slots in serving]
    # Running jobs of other queues may never end; a worker serves each queue in turn.
    slots = max(sum(serving) - busy, len(serving))
    return slots if state.concurrency is None else min(slots, state.concurrency)


def _pace(state: QueueState) -> float:
    if state.rate is None:
        return 0.0
    return state.rate.per.total_seconds() * 1000 / state.rate.limit
