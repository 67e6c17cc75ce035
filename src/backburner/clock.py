"""The machine's clock and dice: the only place that reads either."""

import random
import secrets
import time


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

    def roll(self) -> float:
        return random.random()

    def token(self) -> str:
        return secrets.token_hex(8)

    def uuid(self, now: int) -> str:
        # 48 bits of time and 12 of order: within a millisecond ids keep the order in
        # which they were drawn, and borrow from the next when 4,096 are used up.
        self._last = max(self._last + 1, now << 12)
        return uuid7(self._last, secrets.randbits(62))


def uuid7(ordered: int, chance: int) -> str:
    """Write a UUIDv7: `ordered` is 48 bits of milliseconds and 12 of order."""
    high = (ordered >> 12) << 16 | 0x7000 | ordered & 0xFFF
    low = 0x8000_0000_0000_0000 | chance
    digits = f"{high:016x}{low:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
