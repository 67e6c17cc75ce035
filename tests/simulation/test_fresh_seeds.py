"""Seeds that nobody has run before, and those that failed once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from backburner.testing.simulation import simulate
from tests.simulation import seeds
from tests.simulation.mutation import unmeasured

PARTS = 4
"""Tests that share the new seeds, so that processes can."""


def broken_by(chosen: list[int]) -> dict[int, list[str]]:
    """Run seeds; return what each broke."""
    with unmeasured():
        outcomes = [simulate(seed) for seed in chosen]
    return {
        outcome.seed: [
            f"{breach.invariant}: {breach.told}" for breach in outcome.breaches
        ]
        for outcome in outcomes
        if outcome.breaches
    }


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_is_kept_in_seeds_that_are_new(
    part: int, record_property: Callable[[str, str], None]
) -> None:
    origin = seeds.origin()
    mine = seeds.fresh(origin)[part::PARTS]
    if not mine:
        return  # none are wanted
    replay = ".venv/bin/python -m backburner.testing.simulation --trace --seed"

    broken = broken_by(mine)

    told = f"{len(mine)} new seeds from {origin}, part {part}: {len(broken)} failed"
    failed = [f"  {replay} {seed}" for seed in broken]
    record_property(
        "told", "\n".join([f"{told}; replay one: {replay} {mine[0]}", *failed])
    )
    assert {} == broken, (
        f"add them to {seeds.FAILED.name}; all again: "
        f"BACKBURNER_TEST_FRESH_FROM={origin} .venv/bin/pytest {__file__}"
    )


def test_every_promise_is_kept_in_seeds_that_failed_once() -> None:
    assert {} == broken_by(seeds.failed())


@pytest.mark.thorough
def test_a_broken_promise_is_noticed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backburner.testing.simulation.evidence.LEASE", 3600)

    broken = broken_by(seeds.fresh("a control")[:5])

    assert any("was declared dead after" in line for t in broken.values() for line in t)


def test_a_commit_has_seeds_of_its_own_and_always_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BACKBURNER_TEST_FRESH_SEEDS", raising=False)
    monkeypatch.delenv("BACKBURNER_TEST_FRESH_FROM", raising=False)

    assert seeds.fresh("a") == seeds.fresh("a")
    assert set() == set(seeds.fresh("a")) & set(seeds.fresh("b"))
    assert seeds.COUNT == len(set(seeds.fresh("a")))
    assert "" == seeds.commit(tmp_path), "no checkout, so they are drawn"
    monkeypatch.setenv("BACKBURNER_TEST_FRESH_FROM", "chosen")
    assert "chosen" == seeds.origin()
