"""The machine's clock and random generator: no other module uses either."""

import random
import secrets
import time
from collections.abc import Awaitable, Callable

from backburner.domain.jobs.job import Instant, uuid7
from backburner.ports.clock import Clock


class SystemClock:
    """A `Clock` that reads the machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1_000_000


class StoreClock:
    """
    A `Clock` that shows the store's time, so that all processes of a store agree.

    Between two readings of the store's clock it uses the machine's monotonic clock, so
    a wall clock that is wrong or changed has no effect. Before the first reading it
    shows the machine's wall clock.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._offset: int | None = None

    def now(self) -> int:
        if self._offset is None:
            return self._machine.now()
        return self._machine.monotonic() + self._offset

    def monotonic(self) -> int:
        return self._machine.monotonic()

    async def follow(self, read: Callable[[], Awaitable[Instant]]) -> Instant:
        """
        Read the store's clock with `read`, use it from now on and return its time.

        The store read it at some moment between request and response. A known offset
        that fits this is kept, so that a slow response does not make the time jump.
        """
        asked_at = self.monotonic()
        time_of_store = await read()
        least, most = time_of_store - self.monotonic(), time_of_store - asked_at
        offset = (least + most) // 2 if self._offset is None else self._offset
        self._offset = min(max(offset, least), most)
        return time_of_store


class SystemDice:
    """`Dice` that uses the machine's entropy."""

    def __init__(self) -> None:
        self._last = 0
        self._drawn = b""

    def roll(self) -> float:
        return random.random()

    def token(self) -> str:
        # Get many at once: each call to the system lets other threads run first.
        if not self._drawn:
            self._drawn = secrets.token_bytes(8 * 512)
        token, self._drawn = self._drawn[:8], self._drawn[8:]
        return token.hex()

    def uuid(self, now: int) -> str:
        # 48 bits of time and 12 of order: within a millisecond ids keep the order of
        # their creation, and use the next millisecond after 4,096 of them.
        self._last = max(self._last + 1, now << 12)
        return uuid7(self._last, secrets.randbits(62))
