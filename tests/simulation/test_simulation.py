"""The engine keeps its promises, whatever the seed has in store for it."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from backburner.testing.simulation import Outcome, Variant, simulate
from backburner.testing.simulation.__main__ import main
from backburner.testing.simulation.coverage import Coverage
from backburner.testing.simulation.world import Post

MOST_SEEDS = 600


@pytest.mark.thorough
def test_every_promise_is_kept_in_every_seed(outcomes: list[Outcome]) -> None:
    broken = {outcome.seed: outcome.breaches for outcome in outcomes}

    assert {} == {seed: told for seed, told in broken.items() if told}


@pytest.mark.thorough
def test_every_failpoint_and_every_move_is_reached(
    outcomes: list[Outcome], record_property: Callable[[str, str], None]
) -> None:
    # Random crashes reach most failpoints; the others get crashes of their own.
    met, more = list(outcomes), iter(range(len(outcomes), MOST_SEEDS))
    while (coverage := Coverage(met)).gaps() and (seed := next(more, None)):
        place, _, verb = coverage.gaps()[0].rpartition(" ")
        met.append(simulate(seed, Variant(crash_at=place if verb == "crashed" else "")))

    record_property("told", "\n".join(coverage.report()))
    assert [] == coverage.gaps()
    assert 0 == coverage.failed


@pytest.mark.thorough
def test_some_worlds_have_a_broker_and_most_have_none(outcomes: list[Outcome]) -> None:
    brokered = [outcome for outcome in outcomes if Post(outcome.seed).is_used]

    assert 0.2 < len(brokered) / len(outcomes) < 0.4
    published = [outcome.passed["relay.publish"] for outcome in brokered]
    assert published.count(0) < len(brokered) / 5, "hardly any went without messages"


@pytest.mark.thorough
def test_a_seed_always_gives_the_same_run(outcomes: list[Outcome]) -> None:
    again = simulate(17)

    assert outcomes[17].digest == again.digest


@pytest.mark.thorough
def test_a_seed_gives_the_same_run_in_another_process(
    outcomes: list[Outcome],
) -> None:
    command = [sys.executable, "-m", "backburner.testing.simulation", "--seed", "17"]
    told = subprocess.run(
        command,
        env={"PYTHONHASHSEED": "17"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert f"digest {outcomes[17].digest}\n" == told.stdout


@pytest.mark.thorough
def test_another_seed_gives_another_run(outcomes: list[Outcome]) -> None:
    assert len(outcomes) == len({outcome.digest for outcome in outcomes})


def test_a_trace_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seed", "17", "--trace"])
    told = capsys.readouterr().out.splitlines()

    assert 0 == status
    assert "0.000000 p0 starts" == told[0]
    assert "digest" in told[-1]


def test_any_range_of_seeds_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seeds", "2", "--from", "400"])

    assert 0 == status
    assert "0 of 2 seeds failed\n" in capsys.readouterr().out


def test_a_failing_seed_is_told_and_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backburner.testing.simulation.evidence.LEASE", 3600)

    status = main(["--seeds", "5"])

    assert 1 == status
    assert "was declared dead after" in capsys.readouterr().out
