"""Moves the mark in one transaction and translates in the next: a mutation."""

from translating import app

from backburner.domain.events.translation import Untranslated
from backburner.engine.maintenance.translating import Translator

__all__ = ["app"]


async def _commit(self: Translator, found: Untranslated) -> bool:
    name, engine = self._application, self._engine
    self._faults.hit("translate.read")
    await engine.transact(lambda tx: tx.advance(name, found.mark, found.upto))
    self._faults.hit("translate.published")
    await engine.transact(lambda tx: [self._translate(tx, e) for e in found.events])
    return True


Translator._commit = _commit
