"""What one run spends on model calls, and whether it may make another."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from backburner.domain.costs.usage import RunUsage, Usage
from backburner.domain.jobs.job import Claim, Instant, Wait
from backburner.engine.models.usage import UsageLog, UsageSink


class Bill:
    """The paid calls of one step whose result is not stored yet."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


_bill: ContextVar[Bill | None] = ContextVar("bill", default=None)
"""The bill of the step in which this code runs, if its result will be stored."""


@contextmanager
def billed() -> Iterator[Bill]:
    """Count the paid calls that the block makes, except concurrent ones."""
    bill = Bill()
    outer = _bill.set(bill)
    try:
        yield bill
    finally:
        _bill.reset(outer)


class Spending:
    """
    The model calls of one run of a job.

    A run that has paid for a call must not start again without using an attempt: it
    would pay for that call each time. So it waits in place for its next call, and if it
    ends it has used an attempt. A run whose paid answers are all stored can be
    suspended instead: the next run reuses them.
    """

    __slots__ = (
        "_claim",
        "_has_been_served",
        "_unstored",
        "_usage_sink",
        "began",
        "has_recalled",
        "is_over",
        "patience",
        "stores",
        "suspended",
        "under_way",
        "usage_log",
    )

    def __init__(
        self,
        claim: Claim,
        usage_sink: UsageSink | None = None,
        patience: float = 0.0,
        *,
        is_over: bool = False,
    ) -> None:
        self.patience = patience
        """How many seconds a run that has paid waits for its next call."""
        self._claim = claim
        self._usage_sink = usage_sink
        self._has_been_served = False
        self.began: Callable[[], None] | None = None
        """Called when a call is being made, in its task."""
        self._unstored = 0
        """The number of paid calls whose answers no later run could reuse."""
        self.has_recalled = False
        """Whether an answer that an earlier run paid for was reused."""
        self.stores = False
        """Whether the answers of this run are stored."""
        self.suspended: Wait | None = None
        """What a call of this run waits for, if the run is about to end."""
        self.usage_log: UsageLog | None = None
        """The usage that was recorded, if there is any."""
        self.under_way = 0
        """The number of calls in progress."""
        self.is_over = is_over
        """Whether the run has ended, so that nothing waits for its calls."""

    @property
    def has_paid(self) -> bool:
        """Whether a call was answered, or is in progress."""
        return self._has_been_served or self.usage_log is not None or self.under_way > 0

    @property
    def can_be_suspended(self) -> bool:
        """Whether the run can end at a full lane without paying twice for an answer."""
        has_answers = self.has_paid or self.has_recalled
        is_stored = self.stores and not self.under_way and not self._unstored
        return bool(self._claim.token) and has_answers and is_stored

    def store(self, bill: Bill) -> None:
        """Record that the answer of these calls is stored as a step's result."""
        self._unstored -= bill.calls

    def _count(self) -> None:
        self._unstored += 1
        bill = _bill.get()
        if bill is not None:
            bill.calls += 1

    def add(self, call: Usage, *, is_estimate: bool = False) -> None:
        """Record the usage of a call, as its provider counted it or as an estimate."""
        if self.usage_log is None:
            self.usage_log = UsageLog(self._claim, self._usage_sink)
        self.usage_log.has_steps = self.began is not None
        self.usage_log.add(call, is_estimate=is_estimate)
        self._count()

    def now(self) -> Instant:
        """Return the time by the clock of the usage records."""
        return 0 if self._usage_sink is None else self._usage_sink.now()

    async def booking(self) -> RunUsage | None:
        """Return the usage that is not recorded yet, with its prices."""
        if (
            self._usage_sink is None
            or self.usage_log is None
            or not self.usage_log.is_open
        ):
            return None
        return await self._usage_sink.booking(self.usage_log)

    def booked(self, booking: RunUsage) -> None:
        """Record that this usage is in the store."""
        if self._usage_sink is not None and self.usage_log is not None:
            self._usage_sink.booked(self.usage_log, booking)

    async def check(self) -> None:
        """Raise if the run may make no further call."""
        if self.is_over:
            raise RuntimeError("the handler has ended: it may make no further call")
        if self._usage_sink is not None:
            await self._usage_sink.check(self._claim, self.usage_log)

    def begin(self) -> None:
        """Record that a call has begun."""
        self.under_way += 1
        if self.began is not None:
            self.began()

    def end(self, *, is_served: bool) -> None:
        """Record that a call has ended, and whether it was answered."""
        self.under_way -= 1
        self._has_been_served = self._has_been_served or is_served
        if is_served:
            self._count()
