"""
Simulates a queue to compute how long jobs wait.

    python -m bench.scaling

Jobs arrive at random and occupy one of the slots for the duration of a model call. The
store accepts, hands out and settles them, one batch at a time. The store's figures are
from `make bench`; docs/scaling.md shows the resulting table.
"""

import heapq
import random
from collections.abc import Iterator
from typing import NamedTuple

STORE_JOBS = 6_700.0
"""What one PostgreSQL on two cores takes and hands out, jobs/s (docs/scaling.md)."""
CALL_SECONDS = 5.0
SPREAD = 1.0
"""The standard deviation of a call's logarithm: one in twenty takes over 16 s."""
JOBS = 200_000
SEED = 1


class Deployment(NamedTuple):
    """A load, and the capacity for it."""

    jobs: float
    """Arrivals per second."""
    slots: int
    store: float = STORE_JOBS
    call: float = CALL_SECONDS
    spread: float = SPREAD


class Waits(NamedTuple):
    """The waits of jobs from submit to start, in seconds."""

    p50: float
    p95: float
    p99: float
    busy: float
    """The share of slots that were in use."""


def simulate(deployment: Deployment, count: int = JOBS, seed: int = SEED) -> Waits:
    """Simulate a number of jobs; the first third is warm-up."""
    dice = random.Random(seed)
    free = [0.0] * deployment.slots
    waits, worked, end = [], 0.0, 0.0
    for number, (arrives, ready) in enumerate(_admitted(deployment, count, dice)):
        start = max(ready, free[0])
        takes = _call(deployment, dice)
        heapq.heapreplace(free, start + takes)
        end = max(end, start)
        worked += takes
        if number >= count // 3:
            waits.append(start - arrives)
    waits.sort()
    return Waits(
        *(waits[int(len(waits) * part)] for part in (0.5, 0.95, 0.99)),
        busy=min(1.0, worked / (deployment.slots * max(end, deployment.call))),
    )


def _admitted(
    deployment: Deployment, count: int, dice: random.Random
) -> Iterator[tuple[float, float]]:
    """Yield when each job arrives, and when the store has processed it."""
    arrives = ready = 0.0
    for _ in range(count):
        arrives += dice.expovariate(deployment.jobs)
        ready = max(ready, arrives) + dice.expovariate(deployment.store)
        yield arrives, ready


def _call(deployment: Deployment, dice: random.Random) -> float:
    if not deployment.spread:
        return dice.expovariate(1 / deployment.call)
    median = deployment.call / 2.718281828459045 ** (deployment.spread**2 / 2)
    return dice.lognormvariate(0, deployment.spread) * median


def main() -> None:
    """Print how waits grow with the utilisation of slots and store."""
    print("| jobs/s | slots | slots in use | store in use | p50 s | p95 s | p99 s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for jobs in (30.0, 300.0, 3_000.0):
        for use in (0.7, 0.9, 0.97):
            slots = round(jobs * CALL_SECONDS / use)
            count = JOBS if jobs < STORE_JOBS else 2 * JOBS
            found = simulate(Deployment(jobs, slots), max(count, int(jobs * 100)))
            print(
                f"| {jobs:,.0f} | {slots:,} | {use:.0%} | {jobs / STORE_JOBS:.0%} "
                f"| {found.p50:.3f} | {found.p95:.3f} | {found.p99:.3f} |"
            )


if __name__ == "__main__":
    main()
