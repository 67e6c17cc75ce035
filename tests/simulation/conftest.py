"""How many seeds: as many as the suite can afford, or as many as somebody asks for."""

import os
from collections.abc import Iterator

import pytest

from backburner.testing.simulation import Outcome, simulate
from tests.simulation.mutation import SLOW, unmeasured


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Report slow searches in the summary of the run."""
    SLOW.clear()
    yield
    item.user_properties.extend(("told", line) for line in SLOW)


@pytest.fixture(scope="session")
def outcomes() -> list[Outcome]:
    seeds = int(os.environ.get("BACKBURNER_TEST_SEEDS", "80"))
    with unmeasured():
        return [simulate(seed) for seed in range(seeds)]
