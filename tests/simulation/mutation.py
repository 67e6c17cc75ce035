"""Code with a protection left out, and the first seed that finds it out."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from coverage import Coverage

from backburner.stores.sqlite.queries import Queries
from backburner.testing.simulation import Variant, simulate

SEEDS = 900
"""Most are found out by the first ones; one that needs a zombie that lives, later."""


def changed(part: str, instead: str, *names: str) -> Variant:
    """Change a part of statements."""
    queries = Queries.load()
    before = {name: getattr(queries, name) for name in names}
    after = {name: text.replace(part, instead) for name, text in before.items()}
    assert all(before[name] != after[name] for name in names)
    return Variant(queries=replace(queries, **after))


def first_seed_to_break(
    promise: str,
    variant: Variant,
    seeds: Iterable[int] = range(SEEDS),
    *,
    likely: int | None = None,
) -> int | None:
    """
    Run seeds until one breaks a promise; code that cannot run breaks none.

    The likely one goes first: that which found it out when somebody last looked.
    """
    first = () if likely is None else (likely,)
    with unmeasured():
        for seed in dict.fromkeys((*first, *seeds)):
            breaches = simulate(seed, variant).breaches
            failed = [told.told for told in breaches if "TypeError" in told.told]
            assert [] == failed, f"the mutation does not run: {failed[0]}"
            if promise in {told.invariant for told in breaches}:
                return seed
    return None


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
