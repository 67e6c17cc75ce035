"""Limits log lines that repeat while something is broken."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

SECONDS: Final = 10.0
"""The minimum number of seconds between two lines of one kind."""


class Seldom:
    """
    Writes the first log line of a kind at once and further ones at intervals.

    `count` in a line is the number of lines that it stands for.
    """

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def write(self, write: Callable[..., object], event: str, **fields: Any) -> None:
        """Write the line with the given log method, or count it as omitted."""
        now = asyncio.get_running_loop().time()
        count = self._left_out.get(event, 0) + 1
        if now < self._next.get(event, now):
            self._left_out[event] = count
            return
        self._left_out[event], self._next[event] = 0, now + SECONDS
        write(event, count=count, **fields)
