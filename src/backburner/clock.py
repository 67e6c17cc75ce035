"""The machine's clock and dice: the only place that reads either."""

import random
import secrets
import time

from backburner.domain.job import uuid7


class SystemClock:
    """A `Clock` over the machine's own."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemDice:
    """`Dice` over the machine's entropy."""

    def __init__(self) -> None:
        self._last = 0
        self._drawn = b""

    def roll(self) -> float:
        return random.random()

    def token(self) -> str:
        # Drawn in stock: each call to the system lets other threads go first.
        if not self._drawn:
            self._drawn = secrets.token_bytes(8 * 512)
        token, self._drawn = self._drawn[:8], self._drawn[8:]
        return token.hex()

    def uuid(self, now: int) -> str:
        # 48 bits of time and 12 of order: within a millisecond ids keep the order in
        # which they were drawn, and borrow from the next when 4,096 are used up.
        self._last = max(self._last + 1, now << 12)
        return uuid7(self._last, secrets.randbits(62))
