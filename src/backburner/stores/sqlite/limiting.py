"""
Ends transaction bodies that take too long.

SQLite calls a progress handler after a number of steps of a statement. Interrupting a
write rolls back the whole transaction, including the writes of other callers:
`writer.py` runs those again. A body that only computes is refused when it returns.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from backburner.domain.errors import TransactionTooLong

STEPS: Final = 1000
"""The number of steps of a statement after which the time is checked."""


@contextmanager
def limited(raw: sqlite3.Connection, seconds: float | None) -> Iterator[None]:
    """Limit the duration of the block."""
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
            # A body that continued after the interruption may have begun a new
            # transaction.
            raw.rollback()
