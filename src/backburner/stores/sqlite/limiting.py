"""
Cuts off transaction bodies that take too long.

SQLite asks a progress handler every so many steps of a statement. One that is
interrupted while it writes takes the whole transaction with it, also what other callers
wrote in it: `writer.py` runs those again. A body that only computes is refused when it
returns.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from backburner.domain.errors import TransactionTooLong

STEPS: Final = 1000
"""After how many steps of a statement the time is looked at."""


@contextmanager
def limited(raw: sqlite3.Connection, seconds: float | None) -> Iterator[None]:
    """Have the block end within so many seconds."""
    if seconds is None:
        yield
        return
    end = time.monotonic() + seconds
    is_interrupted = False

    def interrupts() -> bool:
        nonlocal is_interrupted
        is_interrupted = is_interrupted or time.monotonic() >= end
        return is_interrupted

    raw.set_progress_handler(interrupts, STEPS)
    try:
        yield
    except Exception as error:
        if is_interrupted or time.monotonic() >= end:
            raise TransactionTooLong(seconds) from error
        raise
    else:
        if is_interrupted or time.monotonic() >= end:
            raise TransactionTooLong(seconds)
    finally:
        raw.set_progress_handler(None, STEPS)
        if is_interrupted and raw.in_transaction:
            # A body that went on after the interruption may have begun another one.
            raw.rollback()
