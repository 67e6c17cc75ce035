"""Counts what the seeds reached, because an unreached state proves nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import ALLOWED
from backburner.testing.auditor import CAUSES
from backburner.testing.simulation.fate import FAILPOINTS
from backburner.testing.simulation.run import Outcome

MOVES: Final = tuple(
    (before, after)
    for before in JobState
    for after in JobState
    if after in ALLOWED[before]
    and (before, after) != (JobState.WAITING, JobState.FAILED)
    and (after is not JobState.SCHEDULED or before not in {after, JobState.QUEUED})
)
"""
A waiting job is queued before it expires. Moves that only a caller's change of the
start time makes are left out.
"""


class Coverage:
    """Counts over many seeds."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.passed: Counter[str] = Counter()
        self.crashed: Counter[str] = Counter()
        self.moves: Counter[tuple[JobState, JobState]] = Counter()
        self.followed: Counter[str] = Counter()
        self.seeds = self.failed = 0
        for outcome in outcomes:
            self._add(outcome)

    def report(self) -> Iterator[str]:
        """Yield a line for each failpoint, transition and end."""
        yield f"{'failpoint':<28}{'passed':>10}{'crashed':>10}"
        for name in sorted({*FAILPOINTS, *self.passed}):
            yield f"{name:<28}{self.passed[name]:>10}{self.crashed[name]:>10}"
        yield f"{'move':<28}{'made':>10}"
        for before, after in MOVES:
            told = f"{before} → {after}"
            yield f"{told:<28}{self.moves[before, after]:>10}"
        yield f"{'end with a completion':<28}{'made':>10}"
        for cause in CAUSES:
            yield f"{cause:<28}{self.followed[cause]:>10}"
        yield f"{self.failed} of {self.seeds} seeds failed"

    def gaps(self) -> list[str]:
        """Return what was never reached, and failpoints that are not listed."""
        return [
            *(f"{name} passed" for name in FAILPOINTS if not self.passed[name]),
            *(f"{name} crashed" for name in FAILPOINTS if not self.crashed[name]),
            *(f"{a} → {b}" for a, b in MOVES if not self.moves[a, b]),
            *(f"{cause} followed" for cause in CAUSES if not self.followed[cause]),
            *(f"{name} listed" for name in self.passed if name not in FAILPOINTS),
        ]

    def _add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.failed += bool(outcome.breaches)
        self.passed += outcome.passed
        self.crashed += outcome.crashed
        self.moves += outcome.moves
        self.followed += outcome.followed
