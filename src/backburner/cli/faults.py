"""Ends this process at a named place, as a crash would: for tests."""

import os
from itertools import count

from backburner.cli.exits import Exit
from backburner.domain.errors import ConfigurationError
from backburner.ports.faults import Faults, NoFaults


class Crash:
    """`Faults` that end the process at the n-th hit of one failpoint."""

    def __init__(self, name: str, at: int) -> None:
        self._name = name
        self._at = at
        # Several threads hit failpoints; `count` is atomic.
        self._hits = count(1)

    def hit(self, name: str) -> None:
        if name == self._name and next(self._hits) == self._at:
            os._exit(Exit.KILLED)


def parse(text: str | None) -> Faults:
    """Parse `name` or `name:n`; an empty text means no faults."""
    if not text:
        return NoFaults()
    name, _, number = text.partition(":")
    if not name or not (number or "1").isdecimal():
        raise ConfigurationError(
            f"BACKBURNER_FAULT={text!r}: use the name of a failpoint, or name:n"
        )
    return Crash(name, int(number or "1"))
