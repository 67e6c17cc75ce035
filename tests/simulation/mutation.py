"""
Code with a protection left out, and the first seed that finds it out.

`likely.json` has, for each test, the seed that found it out when somebody last looked;
that seed goes first. When the engine changes, other seeds may find it out. The summary
of the run names the tests that then needed a long search; this notes the new seeds:

    BACKBURNER_TEST_PIN=1 .venv/bin/pytest tests/simulation -k mutations
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from coverage import Coverage

from backburner.stores.sqlite.queries import Queries
from backburner.testing.simulation import Variant, simulate
from backburner.testing.simulation.disk import Disk

SEEDS = 900
"""Most are found out by the first ones; one that needs a zombie that lives, later."""
FEW = 25
"""A search of more seeds than these is slow: the summary names its test."""
HEALING = 90.0
"""
How long a world without a protection may take to come to rest.

Less than others: a job that is lost does not come back, and waiting for it costs most.
"""
LIKELY = Path(__file__).with_name("likely.json")
SLOW: list[str] = []
"""What the summary says about slow searches of the running test."""
PIN = "BACKBURNER_TEST_PIN"
CANNOT_RUN = re.compile(
    r"\b(TypeError|AttributeError|NameError|UnboundLocalError|ImportError"
    r"|OperationalError|ProgrammingError|InterfaceError)\b"
)
"""What code raises that was changed into nonsense, not one without a protection."""


def changed(part: str, instead: str, *names: str) -> Variant:
    """Change a part of statements; what comes of it is still a statement."""
    queries = Queries.load()
    before = {name: getattr(queries, name) for name in names}
    after = {name: text.replace(part, instead) for name, text in before.items()}
    assert all(before[name] != after[name] for name in names)
    disk = Disk(lambda: 0, ())
    try:
        for text in after.values():
            disk.explain(text)
    finally:
        disk.close()
    return Variant(queries=replace(queries, **after))


def first_seed_to_break(
    promise: str, variant: Variant, seeds: Iterable[int] = range(SEEDS)
) -> int | None:
    """Run seeds until one breaks a promise; code that cannot run breaks none."""
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" (")[0].rpartition("/")[2]
    likely = json.loads(LIKELY.read_text()).get(test)
    first = () if likely is None else (likely,)
    variant = replace(variant, healing=HEALING)
    with unmeasured():
        for count, seed in enumerate(dict.fromkeys((*first, *seeds))):
            breaches = simulate(seed, variant).breaches
            failed = [told.told for told in breaches if CANNOT_RUN.search(told.told)]
            assert [] == failed, f"the mutation does not run: {failed[0]}"
            if promise in {told.invariant for told in breaches}:
                _note(test, seed, count)
                return seed
    return None


def _note(test: str, seed: int, count: int) -> None:
    """Write the seed to the file if that is wanted, and report a slow search."""
    if os.environ.get(PIN):
        noted = json.loads(LIKELY.read_text())
        if count:
            noted[test] = seed
        LIKELY.write_text(json.dumps(noted, indent=2, sort_keys=True) + "\n")
    elif count > FEW:
        SLOW.append(
            f"{test}: seed {seed} found the mutation after {count} others; update "
            f"{LIKELY.name}: {PIN}=1 .venv/bin/pytest tests/simulation -k mutations"
        )


@contextmanager
def unmeasured() -> Iterator[None]:
    """Pause coverage: it takes longer than the seeds, and the first have shown all."""
    paused: list[Coverage] = []
    while (measuring := Coverage.current()) is not None:  # two in a process of xdist's
        measuring.stop()
        paused.append(measuring)
    try:
        yield
    finally:
        for measuring in reversed(paused):
            measuring.start()
