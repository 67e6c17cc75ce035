"""
Records the usage of models in the store.

Calls are recorded by the settlement of their run if that comes within a moment, and
separately if not: so usage is known if the worker dies, and to someone who cancels the
job. Calls of a run that lost its job are recorded late. Calls are numbered, so each
counts once however often it is sent.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from backburner.domain.costs.usage import NOTHING, Price, RunUsage, Spent, Usage
from backburner.domain.errors import (
    BudgetExhausted,
    HoldExhausted,
    OverBudget,
    StoreUnavailable,
)
from backburner.domain.jobs.job import Claim, Instant
from backburner.engine.loop import Loop
from backburner.engine.sending import send_all
from backburner.ports.clock import Clock
from backburner.ports.log import log
from backburner.ports.prices import Prices
from backburner.ports.store import Store

FIRST_RUN: Final = 2
"""A `job.started` event with at most this number is the first one of its job."""
PATIENCE_MS: Final = 50
"""How long after a call the settlement of its run is awaited."""
LONG_MS: Final = 250
"""
The calls of a run that takes longer are recorded at once, as it may go on for long.
"""
RETRY_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 60.0
PARTING_SECONDS: Final = 2.0


class UsageSink(Protocol):
    """Records the usage of runs."""

    def now(self) -> Instant:
        """Return the time of a call."""
        ...

    def enqueue(self, usage_log: "UsageLog") -> None:
        """Record that the log has a new call."""
        ...

    async def ready(self) -> None:
        """Return when prices are loaded."""
        ...

    async def spent_before(self, claim: Claim) -> Spent:
        """Return the usage of earlier runs in a claim's generation."""
        ...

    async def spent_on(self, job_id: str) -> Spent:
        """Return the usage of a job so far, over all of its runs."""
        ...

    async def booking(self, usage_log: "UsageLog") -> RunUsage:
        """Return a run's usage with its prices, to be recorded by the caller."""
        ...

    def booked(self, usage_log: "UsageLog", booking: RunUsage) -> None:
        """Record that the caller has stored this usage."""
        ...

    async def check(self, claim: Claim, usage_log: "UsageLog | None") -> None:
        """Raise `OverBudget` if a run may make no further call."""
        ...


class UsageLog:
    """The usage of one run."""

    __slots__ = (
        "_calls",
        "_claim",
        "_estimates",
        "_priced",
        "_usage_sink",
        "booked",
        "has_lost",
        "has_steps",
    )

    def __init__(self, claim: Claim, usage_sink: UsageSink | None = None) -> None:
        self._claim = claim
        self._usage_sink = usage_sink
        self._calls: list[Usage] = []
        self._estimates: set[int] = set()
        self._priced = 0
        self.booked = 0
        """How many of the calls are known to be in the store."""
        self.has_lost = False
        """Whether the run will not be settled by this worker."""
        self.has_steps = False
        """Whether its calls will be stored together with results of steps."""

    @property
    def calls(self) -> tuple[Usage, ...]:
        """The calls, in order."""
        return tuple(self._calls)

    @property
    def begun_at(self) -> Instant:
        """The start of the run."""
        return self._claim.started_at

    @property
    def since(self) -> Instant:
        """The time of the first call that may not be in the store."""
        return self._calls[self.booked].at

    @property
    def is_open(self) -> bool:
        """Whether there are calls that may not be in the store."""
        return self.booked < len(self._calls)

    def add(self, call: Usage, *, is_estimate: bool = False) -> None:
        """Add a call; one whose tokens are an estimate gets no price."""
        if is_estimate:
            self._estimates.add(len(self._calls))
        now = 0 if self._usage_sink is None else self._usage_sink.now()
        self._calls.append(call._replace(at=now))
        if self._usage_sink is not None:
            self._usage_sink.enqueue(self)

    def price(self, prices: Prices) -> None:
        """Set the prices of calls that have none yet."""
        for n in range(self._priced, len(self._calls)):
            if n in self._estimates:
                continue
            cost, version = _priced(prices, self._calls[n])
            self._calls[n] = self._calls[n]._replace(cost=cost, price_version=version)
        self._priced = len(self._calls)

    def booking(self) -> RunUsage:
        """Return the usage in the form that the store expects."""
        claim = self._claim
        return RunUsage(
            claim.seq, claim.token, claim.generation, claim.events, self.calls
        )


def _priced(prices: Prices, call: Usage) -> Price:
    try:
        return prices.price(call)
    except Exception as error:  # noqa: BLE001 - a missing price must not fail a job
        kind = type(error).__name__
        log.error("price not known", model=call.model, error_type=kind)
        return Price()


async def loaded(prices: Prices) -> None:
    """Load the prices; if that fails, costs are unknown."""
    try:
        await prices.load()
    except Exception as error:  # noqa: BLE001 - missing prices must not fail a job
        log.error("prices not loaded", error_type=type(error).__name__)


class UsageRecorder:
    """Stores the usage of all runs of this process."""

    def __init__(self, store: Store, prices: Prices, clock: Clock) -> None:
        self._store = store
        self._prices = prices
        self._clock = clock
        # In the order of arrival, so that a simulation can be replayed.
        self._usage_logs: dict[UsageLog, None] = {}
        self._loop = Loop("worker-booking", self._book, every=IDLE_SECONDS)

    def start(self) -> None:
        """Start to store usage."""
        self._loop.start()

    async def stop(self) -> None:
        """Store what is left, if possible, and stop."""
        await self._loop.stop()
        usage_logs = tuple(self._usage_logs)
        if usage_logs:
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(PARTING_SECONDS):
                    await send_all(usage_logs, self._tell, self._refuse)

    def now(self) -> Instant:
        return self._clock.now()

    def enqueue(self, usage_log: UsageLog) -> None:
        self._usage_logs[usage_log] = None
        self._loop.poke()

    async def spent_before(self, claim: Claim) -> Spent:
        """Return the usage of earlier runs in a claim's generation."""
        if claim.events <= FIRST_RUN:
            return NOTHING
        return await self._store.spent_before(
            claim.seq, generation=claim.generation, epoch=claim.events
        )

    async def spent_on(self, job_id: str) -> Spent:
        """Return the usage of a job so far, over all of its runs."""
        seqs = [job.seq for job in await self._store.find([job_id])]
        return next(iter((await self._store.spent(seqs)).values()), NOTHING)

    async def check(self, claim: Claim, usage_log: UsageLog | None) -> None:
        """
        Raise `OverBudget` if a run may make no further call.

        All of its usage is recorded first. While the store is unavailable this waits,
        so that no call exceeds a budget and no paid answer is lost.
        """
        if not claim.holds or (usage_log is None and claim.events <= FIRST_RUN):
            return
        refused = await self._refusal(claim, usage_log)
        if isinstance(refused, HoldExhausted):
            raise OverBudget(
                f"{refused}: it may make no further call. Raise the capability's "
                "estimate of tokens or the budget, or set the budget's overrun to "
                "extend, then retry the job",
                code=refused.code,
            )
        if refused is not None:
            raise OverBudget(
                f"{refused}, and this job has used all that was held for it: it may "
                "make no further call. Raise the budget or wait for its next window, "
                "then retry the job"
            )

    async def _refusal(
        self, claim: Claim, usage_log: UsageLog | None
    ) -> BudgetExhausted | None:
        while True:
            try:
                if usage_log is not None and usage_log.is_open:
                    await self.ready()
                    await self._tell([usage_log])
                return await self._store.overspent(claim.seq, claim.token)
            except StoreUnavailable as error:
                log.warning("budget not read", job_id=claim.id, code=error.code)
            await asyncio.sleep(RETRY_SECONDS)  # noqa: TID251 - no event to wait for

    async def ready(self) -> None:
        """Return when prices are loaded."""
        await loaded(self._prices)

    def settle(self, usage_log: UsageLog) -> Sequence[Usage]:
        """Return the calls of an ended run, to be stored by its settlement."""
        usage_log.price(self._prices)
        return usage_log.calls

    def settled(self, usage_log: UsageLog) -> None:
        """Record that the settlement of a run has stored all its calls."""
        usage_log.booked = len(usage_log.calls)
        self._usage_logs.pop(usage_log, None)

    async def booking(self, usage_log: UsageLog) -> RunUsage:
        """Return a run's usage with its prices, to be recorded by the caller."""
        await self.ready()
        usage_log.price(self._prices)
        return usage_log.booking()

    def booked(self, usage_log: UsageLog, booking: RunUsage) -> None:
        """Record that this usage of a run is in the store."""
        usage_log.booked = max(usage_log.booked, len(booking.calls))
        if not usage_log.is_open:
            self._usage_logs.pop(usage_log, None)

    async def book(self, usage_logs: Sequence[UsageLog]) -> None:
        """Store calls now; return when they are in the store."""
        await self._tell(usage_logs)

    def lose(self, usage_log: UsageLog) -> None:
        """Store the calls of a run that lost its job and will not be settled."""
        if usage_log.calls:
            usage_log.has_lost = True
            self.enqueue(usage_log)

    async def _book(self) -> float | None:
        now = self._clock.now()
        waits = {usage_log: _wait(usage_log, now) for usage_log in self._usage_logs}
        due = [usage_log for usage_log, wait in waits.items() if wait <= 0]
        if due:
            await self.ready()
            try:
                await send_all(due, self._tell, self._refuse)
            except StoreUnavailable as error:
                log.warning("usage not recorded", code=error.code, count=len(due))
                return RETRY_SECONDS
        left = [
            waits[usage_log]
            for usage_log in self._usage_logs
            if usage_log in waits and usage_log not in due
        ]
        return min(left) / 1000 if left else None

    def _refuse(self, usage_log: UsageLog, error: Exception) -> None:
        """Log that the store refused a run's usage; it is sent again."""
        kind = type(error).__name__
        log.error("usage refused", count=len(usage_log.calls), error_type=kind)

    async def _tell(self, usage_logs: Sequence[UsageLog]) -> None:
        for usage_log in usage_logs:
            usage_log.price(self._prices)
        bookings = [usage_log.booking() for usage_log in usage_logs]
        await self._store.book(bookings)
        for usage_log, booking in zip(usage_logs, bookings, strict=True):
            self.booked(usage_log, booking)


def _wait(usage_log: UsageLog, now: Instant) -> int:
    """Return in how many milliseconds a log must be recorded separately."""
    if usage_log.has_lost or not usage_log.is_open:
        return 0
    if usage_log.has_steps:
        return usage_log.since + PATIENCE_MS - now
    return min(usage_log.since + PATIENCE_MS, usage_log.begun_at + LONG_MS) - now
