"""Jobs of a simulation that wait, and who signals them."""

import random
from collections.abc import Iterator
from typing import Final

from backburner.testing.records import Breach
from backburner.testing.simulation.disk import Disk

PATIENT: Final = 0.25
"""In how many worlds jobs wait."""
NAME: Final = "waits"
SIGNAL: Final = "go"
NONE: Final = -1
"""What a job got for which no signal came in time."""
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
    """Which jobs wait for what, drawn apart from everything else, and what they got."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"waits {seed}")
        self.is_used = self.lots.random() < PATIENT
        """Whether jobs of this world wait."""
        self.accepted: dict[str, int] = {}
        """By job, the value that was answered as stored."""
        self._told: list[Breach] = []
        self._got: dict[tuple[str, int], int] = {}

    def draw(self) -> str:
        """Draw what a job waits for."""
        if not self.is_used:
            return ""
        return self.lots.choice(("", "sleep", "signal", "signal", "limit"))

    def untold(self, disk: Disk) -> list[str]:
        """Return jobs that nobody has signalled, in any order, a few at most."""
        found = [job for (job,) in disk.rows(UNTOLD) if job not in self.accepted]
        return self.lots.sample(found, k=min(2, len(found)))

    def run_step(self, disk: Disk, job: str, name: str) -> str:
        """Note that a step runs: its result must not be stored."""
        if (job, name) in disk.rows(STORED):
            self._told.append(Breach(NAME, job, f"step {name} runs, but is stored"))
        return name

    def accept(self, job: str, value: int) -> None:
        """Note that a signal was answered as stored: there is one value."""
        first = self.accepted.setdefault(job, value)
        if first != value:
            self._told.append(Breach(NAME, job, f"took {first} and {value}"))

    def get(self, job: str, generation: int, value: int) -> None:
        """Note what a run got: each run of a generation gets the same."""
        first = self._got.setdefault((job, generation), value)
        if first != value:
            self._told.append(Breach(NAME, job, f"got {first}, then {value}"))

    def breaches(self) -> Iterator[Breach]:
        """Yield what went wrong."""
        yield from self._told
        for (job, _), value in self._got.items():
            if value not in (NONE, self.accepted.get(job, value)):
                told = f"got {value}, not {self.accepted[job]}"
                yield Breach(NAME, job, told)
