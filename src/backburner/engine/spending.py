"""What one run spends on model calls, and whether it may make another."""

from collections.abc import Callable

from backburner.domain.job import Claim, Instant
from backburner.domain.usage import Booking, Usage
from backburner.engine.booking import Tab, Till


class Spending:
    """
    The model calls of one run of a job.

    A run that has paid for a call must not start over free of charge: it would pay for
    that call again each time. So it waits where it is for its next call, and if it
    ends all the same it has used an attempt.
    """

    __slots__ = (
        "_claim",
        "_has_been_served",
        "_till",
        "began",
        "is_over",
        "patience",
        "tab",
        "under_way",
    )

    def __init__(
        self,
        claim: Claim,
        till: Till | None = None,
        patience: float = 0.0,
        *,
        is_over: bool = False,
    ) -> None:
        self.patience = patience
        """For how many seconds a run that has paid waits for its next call."""
        self._claim = claim
        self._till = till
        self._has_been_served = False
        self.began: Callable[[], None] | None = None
        """Called when a call is being made, in its task."""
        self.tab: Tab | None = None
        """The usage that was recorded, if there is any."""
        self.under_way = 0
        """How many calls are being made now."""
        self.is_over = is_over
        """Whether the run has ended: nobody waits for a call of it any more."""

    @property
    def has_paid(self) -> bool:
        """Whether a call was answered, or is under way and may be."""
        return self._has_been_served or self.tab is not None or self.under_way > 0

    def add(self, call: Usage, *, is_estimate: bool = False) -> None:
        """Record what a call used, as its provider counted it or as an estimate."""
        if self.tab is None:
            self.tab = Tab(self._claim, self._till)
        self.tab.has_steps = self.began is not None
        self.tab.add(call, is_estimate=is_estimate)

    def now(self) -> Instant:
        """Return the time by the clock of the usage's records."""
        return 0 if self._till is None else self._till.now()

    async def booking(self) -> Booking | None:
        """Return the usage that is not recorded yet, with its prices."""
        if self._till is None or self.tab is None or not self.tab.is_open:
            return None
        return await self._till.booking(self.tab)

    def booked(self, booking: Booking) -> None:
        """Note that this usage was recorded."""
        if self._till is not None and self.tab is not None:
            self._till.booked(self.tab, booking)

    async def check(self) -> None:
        """Raise if the run may make no further call."""
        if self.is_over:
            raise RuntimeError("the handler has ended: it may make no further call")
        if self._till is not None:
            await self._till.check(self._claim, self.tab)

    def begin(self) -> None:
        """Note that a call is being made."""
        self.under_way += 1
        if self.began is not None:
            self.began()

    def end(self, *, is_served: bool) -> None:
        """Note that a call is over, and whether it was answered."""
        self.under_way -= 1
        self._has_been_served = self._has_been_served or is_served
