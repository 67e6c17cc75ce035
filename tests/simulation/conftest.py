"""How many seeds: as many as the suite can afford, or as many as somebody asks for."""

import os

import pytest

from backburner.testing.simulation import Outcome, simulate
from tests.simulation.mutation import unmeasured


@pytest.fixture(scope="session")
def outcomes() -> list[Outcome]:
    seeds = int(os.environ.get("BACKBURNER_TEST_SEEDS", "300"))
    with unmeasured():
        return [simulate(seed) for seed in range(seeds)]
