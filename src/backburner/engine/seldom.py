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

    def __init__(self, seconds: float = SECONDS) -> None:
        """Write a line of one kind once in so many seconds."""
        self._seconds = seconds
        self._next: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def write(
        self,
        write: Callable[..., object],
        event: str,
        *,
        kind: str | None = None,
        **fields: Any,
    ) -> None:
        """
        Write the line with the given log method, or count it as omitted.

        Lines are of one `kind` if they have the same event, unless the caller names it.
        """
        now, kind = asyncio.get_running_loop().time(), kind or event
        count = self._left_out.get(kind, 0) + 1
        if now < self._next.get(kind, now):
            self._left_out[kind] = count
            return
        self._left_out[kind], self._next[kind] = 0, now + self._seconds
        write(event, count=count, **fields)
