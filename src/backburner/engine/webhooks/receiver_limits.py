"""
Limits how many webhooks a worker sends to one receiver at a time.

A receiver gets a few concurrent calls; further deliveries wait in the store and not in
a slot. A receiver that does not answer is left alone for a while, then one call tests
it. This state is in memory, separate for each worker.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from backburner.domain.jobs.job import Instant
from backburner.domain.jobs.outcome import Failed, Snooze
from backburner.domain.webhooks.webhook import Endpoint
from backburner.ports.clock import Clock, Dice
from backburner.ports.egress import Answer, Silence

SILENT: Final = "WEBHOOK_SILENT"

AT_ONCE: Final = 4
"""The maximum of concurrent calls to one endpoint per worker; fewer with few slots."""
SHARE: Final = 4
"""The maximum of calls of one tenant to one host, as a multiple of `AT_ONCE`."""
PATIENCE_SECONDS: Final = 1.0
"""How long a slot waits for capacity at receivers that answer quickly."""

_SLOW: Final = (Silence.REFUSED, Silence.TIMED_OUT)
_MILLISECOND: Final = timedelta(milliseconds=1)
_SECOND: Final = 1000
_JITTER: Final = 4 * _SECOND
_SHORTEST_REST: Final = 5 * _SECOND
_LONGEST_REST: Final = 60 * _SECOND
_OUT: Final = 600 * _SECOND
"""After this long without an answer, a postponed delivery uses an attempt."""
_FEW: Final = 1000


class ReceiverLimits:
    """Decides when each receiver may be called."""

    def __init__(self, clock: Clock, dice: Dice, *, slots: int) -> None:
        """Create limits for a worker with `slots`: no host gets most of them."""
        self._clock = clock
        self._dice = dice
        self._at_once = max(1, min(AT_ONCE, slots // (2 * SHARE)))
        self._shared_slots = _SharedSlots(slots // 2)
        self._known: dict[tuple[str, str], _Receiver] = {}
        self._many = _FEW
        self._calls: Counter[tuple[str, str]] = Counter()

    async def call(
        self, endpoint: Endpoint, send: Callable[[], Awaitable[Answer | Silence]]
    ) -> Answer | Silence | Snooze | Failed:
        """Call the endpoint if it has capacity; otherwise return when to try again."""
        receiver = self._receiver(endpoint)
        if not await receiver.enter():
            return receiver.later(self._dice.roll())
        host = (endpoint.owner.tenant, _host(endpoint))
        self._calls[host] += 1
        try:
            if self._calls[host] > SHARE * self._at_once:
                return receiver.later(self._dice.roll())
            began = self._clock.monotonic()
            answer = await send()
            receiver.learn(answer, began)
        finally:
            self._calls[host] -= 1
            if not self._calls[host]:
                del self._calls[host]
            receiver.leave()
        return answer

    def rest(self, endpoint: Endpoint, span: timedelta) -> None:
        """Do not call an endpoint for the requested time, at most a minute."""
        until = self._clock.monotonic() + min(span // _MILLISECOND, _LONGEST_REST)
        self._receiver(endpoint).rest(until)

    def _receiver(self, endpoint: Endpoint) -> "_Receiver":
        key = (endpoint.id, _host(endpoint))
        found = self._known.get(key)
        if found is None:
            self._forget()
            found = _Receiver(self._clock, self._at_once, self._shared_slots)
            self._known[key] = found
        return found

    def _forget(self) -> None:
        if len(self._known) < self._many:
            return
        self._known = {k: r for k, r in self._known.items() if not r.is_idle}
        self._many = max(_FEW, 2 * len(self._known))


def _host(endpoint: Endpoint) -> str:
    return urlsplit(endpoint.url).netloc


@dataclass(slots=True)
class _SharedSlots:
    """The slots that deliveries to all receivers may wait in."""

    left: int


class _Receiver:
    """What a worker knows about one endpoint."""

    def __init__(self, clock: Clock, at_once: int, shared_slots: _SharedSlots) -> None:
        self._clock = clock
        self._at_once = at_once
        self._shared_slots = shared_slots
        self._places = asyncio.Semaphore(at_once)
        self._waiting = 0
        self._begun: deque[Instant] = deque()
        """The start times of calls in progress."""
        self._pace = 0
        """The approximate duration of its calls."""
        self._strikes = 0
        """The number of consecutive calls without an answer."""
        self._struck_at: Instant = 0
        self._silent_since: Instant | None = None
        self._rests_until: Instant = 0
        self._booked_until: Instant = 0

    async def enter(self) -> bool:
        """Take a place if one is free soon; the caller must `leave` it."""
        if not self._is_open() or not await self._take_place():
            return False
        if not self._is_open():  # it fell silent meanwhile
            self._places.release()
            return False
        self._begun.append(self._clock.monotonic())
        return True

    def leave(self) -> None:
        """Release a place."""
        self._begun.popleft()
        self._places.release()

    def learn(self, answer: Answer | Silence, began: Instant) -> None:
        """Record the result of a call."""
        now = self._clock.monotonic()
        self._pace = (3 * self._pace + now - began) // 4
        if answer not in _SLOW:
            self._strikes = 0
            self._silent_since = None
        elif began >= self._struck_at:  # concurrent failures count once
            self._strikes += 1
            self._struck_at = now
            self._silent_since = self._silent_since or began
            rest = _SHORTEST_REST << min(self._strikes - 1, 10)
            self.rest(now + min(rest, _LONGEST_REST))

    def rest(self, until: Instant) -> None:
        """Allow no call before then."""
        self._rests_until = max(self._rests_until, until)

    def later(self, roll: float) -> Snooze | Failed:
        """Return when to try again, depending on how many wait."""
        now = self._clock.monotonic()
        if self._silent_since is not None and now - self._silent_since >= _OUT:
            # A wait that costs nothing must end, or no delivery ever would.
            return Failed(SILENT, "the receiver has not answered recently")
        begin = max(now, self._rests_until, self._booked_until)
        booked = begin + self._pace // (2 * self._at_once)
        self._booked_until = min(booked, now + _LONGEST_REST)
        wait = self._booked_until - now + _SECOND + int(_JITTER * roll)
        return Snooze(
            timedelta(milliseconds=wait),
            "too many webhooks to this receiver are in progress",
        )

    @property
    def is_idle(self) -> bool:
        """Whether it holds no state that matters."""
        is_used = self._begun or self._waiting
        return not is_used and self._clock.monotonic() >= (
            self._rests_until + _LONGEST_REST
        )

    def _is_open(self) -> bool:
        if self._clock.monotonic() < self._rests_until:
            return False
        return not (self._strikes and self._begun)  # one finds out for all

    async def _take_place(self) -> bool:
        if not self._places.locked():
            return await self._places.acquire()
        now = self._clock.monotonic()
        is_quick = not self._begun or now - self._begun[0] < _SECOND
        if not is_quick or not self._shared_slots.left:
            return False
        self._shared_slots.left -= 1
        self._waiting += 1
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self._places.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
            self._shared_slots.left += 1
