"""
What runs use of models, on its way to the store.

A run's calls are booked in the transaction that settles it. One that takes longer has
them booked as it goes, so that whoever cancels it sees what it has used; one that lost
its job has them booked late. Each is numbered, so it counts once however often it is
told.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from backburner.domain.errors import StoreUnavailable
from backburner.domain.job import Claim, Instant
from backburner.domain.usage import NOTHING, Booking, Spent, Usage
from backburner.engine.loop import Loop
from backburner.ports.clock import Clock
from backburner.ports.log import log
from backburner.ports.prices import Prices
from backburner.ports.store import Usages

FIRST_RUN: Final = 2
"""The number of a job's `job.started` that can have none before it."""
PATIENCE_MS: Final = 250
"""A run that is over by then needs no booking before its end."""
RETRY_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 60.0
PARTING_SECONDS: Final = 2.0


class Till(Protocol):
    """Who takes note of a tab."""

    def now(self) -> Instant:
        """Return the time of a call."""
        ...

    def ring_up(self, tab: "Tab") -> None:
        """Be told that there is a new call on the tab."""
        ...

    async def spent_before(self, claim: Claim) -> Spent:
        """Return what earlier runs of a claim's generation used."""
        ...


class Tab:
    """All that one run has used."""

    __slots__ = ("_calls", "_claim", "_priced", "_till", "booked", "has_lost")

    def __init__(self, claim: Claim, till: Till | None = None) -> None:
        self._claim = claim
        self._till = till
        self._calls: list[Usage] = []
        self._priced = 0
        self.booked = 0
        """How many of the calls are in the store for sure."""
        self.has_lost = False
        """Whether the run has no settlement of its own to look forward to."""

    @property
    def calls(self) -> tuple[Usage, ...]:
        """Its calls, in order."""
        return tuple(self._calls)

    @property
    def begun_at(self) -> Instant:
        """When the run began."""
        return self._claim.started_at

    @property
    def is_open(self) -> bool:
        """Whether there are calls that may not be in the store."""
        return self.booked < len(self._calls)

    def add(self, call: Usage) -> None:
        """Put a call on it."""
        now = 0 if self._till is None else self._till.now()
        self._calls.append(call._replace(at=now))
        if self._till is not None:
            self._till.ring_up(self)

    def price(self, prices: Prices) -> None:
        """Write the prices beside the calls that have none yet."""
        for n in range(self._priced, len(self._calls)):
            cost, version = prices.price(self._calls[n])
            self._calls[n] = Usage(*self._calls[n][:-2], cost, version)
        self._priced = len(self._calls)

    def booking(self) -> Booking:
        """Return it as the store takes it."""
        claim = self._claim
        return Booking(
            claim.seq, claim.token, claim.generation, claim.events, self.calls
        )


async def loaded(prices: Prices) -> None:
    """Return when prices can be told; without them, costs are not known."""
    try:
        await prices.load()
    except Exception as error:  # noqa: BLE001 - work is not lost for want of a price
        log.error("prices not loaded", error_type=type(error).__name__)


class Booker:
    """Tells the store, for every run of this process, what was used."""

    def __init__(self, store: Usages, prices: Prices, clock: Clock) -> None:
        self._store = store
        self._prices = prices
        self._clock = clock
        # In the order of arrival, so that a simulation can be replayed.
        self._tabs: dict[Tab, None] = {}
        self._loop = Loop("worker-booking", self._book, every=IDLE_SECONDS)

    def start(self) -> None:
        """Begin to book."""
        self._loop.start()

    async def stop(self) -> None:
        """Book what is left, if that is possible, and no more."""
        await self._loop.stop()
        tabs = tuple(self._tabs)
        if tabs:
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(PARTING_SECONDS):
                    await self._tell(tabs)

    def now(self) -> Instant:
        return self._clock.now()

    def ring_up(self, tab: Tab) -> None:
        self._tabs[tab] = None
        self._loop.poke()

    async def spent_before(self, claim: Claim) -> Spent:
        """Return what earlier runs of a claim's generation used."""
        if claim.events <= FIRST_RUN:
            return NOTHING
        return await self._store.spent_before(
            claim.seq, generation=claim.generation, epoch=claim.events
        )

    async def ready(self) -> None:
        """Return when prices can be told."""
        await loaded(self._prices)

    def settle(self, tab: Tab) -> Sequence[Usage]:
        """Return the calls of a run that is over: its settlement books them."""
        self._tabs.pop(tab, None)
        tab.price(self._prices)
        return tab.calls

    def lose(self, tab: Tab) -> None:
        """Book the calls of a run that is not settled: others have its job."""
        if tab.calls:
            tab.has_lost = True
            self.ring_up(tab)

    async def _book(self) -> float | None:
        now = self._clock.now()
        waits = {tab: tab.begun_at + PATIENCE_MS - now for tab in self._tabs}
        due = [tab for tab, wait in waits.items() if wait <= 0 or tab.has_lost]
        if due:
            await self.ready()
            try:
                await self._tell(due)
            except StoreUnavailable as error:
                log.warning("booking failed", code=error.code, count=len(due))
                return RETRY_SECONDS
        left = [waits[tab] for tab in self._tabs if tab in waits and tab not in due]
        return min(left) / 1000 if left else None

    async def _tell(self, tabs: Sequence[Tab]) -> None:
        for tab in tabs:
            tab.price(self._prices)
        bookings = [tab.booking() for tab in tabs]
        await self._store.book(bookings)
        for tab, booking in zip(tabs, bookings, strict=True):
            tab.booked = max(tab.booked, len(booking.calls))
            if not tab.is_open:
                self._tabs.pop(tab, None)
