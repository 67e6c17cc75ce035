"""Translations need one transaction and a compare-and-set: a seed finds out."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from backburner.domain.events.translation import Untranslated
from backburner.engine.maintenance.translating import Translator
from backburner.stores.shared import translations
from backburner.stores.tables import marks
from backburner.testing.simulation import Variant
from tests.simulation.mutation import first_seed_to_break

pytestmark = pytest.mark.thorough


async def mark_first(self: Translator, found: Untranslated) -> bool:
    """Move the mark in a transaction of its own, then translate."""
    self._faults.hit("translate.read")
    if not await _move_mark(self, found):
        return False
    self._faults.hit("translate.published")
    await _translate(self, found)
    return True


async def mark_last(self: Translator, found: Untranslated) -> bool:
    """Translate, then move the mark in a transaction of its own."""
    self._faults.hit("translate.read")
    await _translate(self, found)
    self._faults.hit("translate.published")
    return await _move_mark(self, found)


async def _move_mark(self: Translator, found: Untranslated) -> bool:
    name = self._application
    return await self._engine.transact(
        lambda tx: tx.advance(name, found.mark, found.upto)
    )


async def _translate(self: Translator, found: Untranslated) -> None:
    await self._engine.transact(
        lambda tx: [self._translate(tx, event) for event in found.events]
    )


def move_any_mark(
    connection: sa.Connection, application: str, _mark: int, upto: int
) -> bool:
    """Move a mark without a look at where it is."""
    moving = sa.update(marks).where(marks.c.name == f"translation:{application}")
    return bool(connection.execute(moving.values(at=upto)).rowcount)


MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "mark moved in a transaction before": (Translator, "_commit", mark_first),
    "mark moved in a transaction after": (Translator, "_commit", mark_last),
    "mark moved from anywhere": (translations, "advance", move_any_mark),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_missing_protection_is_noticed(
    mutation: str,
    record_property: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(*MUTATIONS[mutation])

    caught = first_seed_to_break("translation", Variant())

    record_property("told", f"{mutation}: translation broken in seed {caught}")
    assert caught is not None
