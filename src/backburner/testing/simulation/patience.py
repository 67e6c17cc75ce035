"""Simulated jobs that wait, and the signals they get."""

import random
from collections.abc import Iterator
from typing import Final

from backburner.testing.records import Breach
from backburner.testing.simulation.disk import Disk

PATIENT: Final = 0.25
"""The share of worlds in which jobs wait."""
NAME: Final = "waits"
SIGNAL: Final = "go"
NONE: Final = -1
"""The value of a job whose signal did not come in time."""
STORED: Final = """
SELECT jobs.id, name FROM step_results JOIN jobs ON jobs.seq = step_results.job
 WHERE result <> ''
"""
UNTOLD: Final = """
SELECT id FROM jobs WHERE finished_at IS NULL
   AND CASE WHEN json_valid(input) THEN input ->> 'waits' IN ('signal', 'limit') END
 ORDER BY seq
"""


class Patience:
    """Draws the waits of jobs, with its own random numbers; checks the results."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"waits {seed}")
        self.is_used = self.lots.random() < PATIENT
        """Whether jobs of this world wait."""
        self.accepted: dict[str, int] = {}
        """By job, the value of the signal that was stored."""
        self._told: list[Breach] = []
        self._got: dict[tuple[str, int], int] = {}

    def draw(self) -> str:
        """Draw what a job waits for."""
        if not self.is_used:
            return ""
        return self.lots.choice(("", "sleep", "signal", "signal", "limit"))

    def untold(self, disk: Disk) -> list[str]:
        """Return up to two jobs without a signal, at random."""
        found = [job for (job,) in disk.rows(UNTOLD) if job not in self.accepted]
        return self.lots.sample(found, k=min(2, len(found)))

    def run_step(self, disk: Disk, job: str, name: str) -> str:
        """Record that a step runs: its result must not be stored yet."""
        if (job, name) in disk.rows(STORED):
            self._told.append(Breach(NAME, job, f"step {name} runs, but is stored"))
        return name

    def accept(self, job: str, value: int) -> None:
        """Record that a signal was stored: a job has one value."""
        first = self.accepted.setdefault(job, value)
        if first != value:
            self._told.append(Breach(NAME, job, f"took {first} and {value}"))

    def get(self, job: str, generation: int, value: int) -> None:
        """Record the value that a run got: all runs of a generation get the same."""
        first = self._got.setdefault((job, generation), value)
        if first != value:
            self._told.append(Breach(NAME, job, f"got {first}, then {value}"))

    def breaches(self) -> Iterator[Breach]:
        """Yield the breaches."""
        yield from self._told
        for (job, _), value in self._got.items():
            if value not in (NONE, self.accepted.get(job, value)):
                told = f"got {value}, not {self.accepted[job]}"
                yield Breach(NAME, job, told)
