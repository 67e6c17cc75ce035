"""
What is counted of the Tasks service.

To make a task is over when it is called back, not at its 202; so the callback counts
for the request that it ends, and is no operation of its own.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from backburner import Counter, Histogram

operations = Counter(
    "tasks_operations_total",
    "Operations of the Tasks service that are over, by result: success or failure.",
    ["operation", "result"],
)
seconds = Histogram(
    "tasks_operation_seconds",
    "How long they took; to create a task, until it was there.",
    ["operation"],
)
CREATE = "create"


def count(operation: str, took: float, *, is_good: bool) -> None:
    """Count an operation that is over."""
    operations.labels(operation, "success" if is_good else "failure").inc()
    seconds.labels(operation).observe(max(0.0, took))


@contextmanager
def counted(operation: str) -> Iterator[None]:
    """Count what the block does."""
    begun, is_good = time.perf_counter(), False
    try:
        yield
        is_good = True
    finally:
        count(operation, time.perf_counter() - begun, is_good=is_good)


@contextmanager
def counted_if_refused(operation: str) -> Iterator[None]:
    """Count what the block does only if it fails: if not, it is not over yet."""
    begun = time.perf_counter()
    try:
        yield
    except BaseException:
        count(operation, time.perf_counter() - begun, is_good=False)
        raise
