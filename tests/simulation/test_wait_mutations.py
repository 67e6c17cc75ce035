"""Every protection of steps, waits and signals is needed: a seed finds it out."""

from collections.abc import Callable
from typing import Any

import pytest

from backburner.domain.jobs.wait import SignalAnswer
from backburner.engine.run.steps import StepJournal
from backburner.stores.shared import ledger, usages, waits
from backburner.stores.shared.grouped import SharedTx
from backburner.testing.simulation import Variant
from backburner.testing.simulation.patience import Patience
from tests.simulation.mutation import SEEDS, first_seed_to_break

pytestmark = pytest.mark.thorough

PATIENT = [seed for seed in range(4 * SEEDS) if Patience(seed).is_used]


async def read_nothing(*_: Any) -> tuple[()]:
    return ()


def keep_the_hold(tx: Any, seqs: Any) -> None:
    """Release the rest of a hold, but leave its amount as it is."""
    rows = tx.rows(tx.queries.list_holds, tx.array(seqs), True)
    found = [ledger._Hold(*row) for row in rows]
    ledger._post(tx, [entry for hold in found for entry in hold.settled(0)])


MUTATIONS: dict[str, tuple[str, Any, str, Any]] = {
    "no look for signals at settlement": (
        *("I2", SharedTx, "has_signal"),
        lambda *_: False,
    ),
    "stored steps are not read": ("waits", StepJournal, "_read", read_nothing),
    "a later signal is answered as stored": (
        *("waits", waits, "answer_to"),
        lambda *_: SignalAnswer.STORED,
    ),
    "a wait leaves the hold as it is": ("budget", usages, "shrink", keep_the_hold),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_protection_that_is_left_out_is_noticed(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, str], None],
) -> None:
    promise, place, attribute, instead = MUTATIONS[name]
    monkeypatch.setattr(place, attribute, instead)
    caught = first_seed_to_break(promise, Variant(), PATIENT)

    record_property("told", f"{name}: caught by seed {caught}")
    assert caught is not None
