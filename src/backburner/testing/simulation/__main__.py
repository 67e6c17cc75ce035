"""Runs seeds by hand: one with its trace, or many."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence

from backburner.testing.simulation.coverage import Coverage
from backburner.testing.simulation.run import Outcome, simulate


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if no seed broke a guarantee, otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m backburner.testing.simulation")
    parser.add_argument("--seed", type=int, help="run this one and show its digest")
    parser.add_argument("--trace", action="store_true", help="show all that happens")
    parser.add_argument("--seeds", type=int, default=300, help="how many to run")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        outcome = simulate(options.seed, tracing=options.trace)
        _say(*outcome.trace, *_told(outcome), f"digest {outcome.digest}")
        return 1 if outcome.breaches else 0
    coverage = Coverage(_run(range(options.first, options.first + options.seeds)))
    _say(*coverage.report())
    return 1 if coverage.failed else 0


def _run(seeds: Iterable[int]) -> Iterator[Outcome]:
    for seed in seeds:
        outcome = simulate(seed)
        _say(*_told(outcome))
        yield outcome


def _told(outcome: Outcome) -> list[str]:
    return [
        f"seed {outcome.seed}: {breach.invariant} {breach.job} {breach.told}"
        for breach in outcome.breaches
    ]


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
