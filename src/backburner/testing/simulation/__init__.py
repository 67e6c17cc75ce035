"""
A deterministic simulation: the real engine and SQL; everything else follows a seed.

`python -m backburner.testing.simulation --seed 17 --trace` replays one seed exactly.
"""

from backburner.testing.simulation.fate import FAILPOINTS
from backburner.testing.simulation.run import Outcome, simulate
from backburner.testing.simulation.world import Variant

__all__ = ["FAILPOINTS", "Outcome", "Variant", "simulate"]
