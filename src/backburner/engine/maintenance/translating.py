"""
Translates engine events into events of applications, each once.

Every process that has loaded the application does this. The application's events commit
in the transaction that advances its stored cursor, and the cursor advances only from
the value at which the events were read: if two processes translate the same page, one
commits nothing.
"""

import asyncio

from backburner.domain.errors import TransactionTooLong
from backburner.domain.events.translation import (
    Selection,
    Translation,
    Untranslated,
    check_types,
)
from backburner.engine.engine import Engine
from backburner.engine.loop import Loop
from backburner.engine.seldom import Seldom
from backburner.engine.transaction import Transaction
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.notifier import Notification, Notifier

PAGE = 100
"""How many events are translated in one transaction."""
IDLE = 1_000
"""After how many unwanted events the stored cursor is advanced without a page."""
SETTLE_SECONDS = 0.05
"""Notifications in quick succession cause one read."""


class Translator:
    """Translates engine events for one application."""

    def __init__(  # noqa: PLR0913 - one argument per collaborator
        self,
        application: str,
        translation: Translation,
        wanted: Selection,
        *,
        engine: Engine,
        notifier: Notifier,
        faults: Faults,
        poll: float = 1.0,
    ) -> None:
        check_types(application, translation.types)
        self._application = application
        self._translate = translation.translate
        self._wanted = wanted
        self._engine = engine
        self._faults = faults
        self._seen = 0
        self._limit = PAGE
        self._seldom = Seldom()
        self._loop = Loop(f"translate-{application}", self.look, every=poll)
        self._unsubscribe = notifier.listen(self._hear)

    async def start(self) -> None:
        """Store the cursor if there is none yet, and start."""
        await self._engine.store.begin_translation(self._application)
        self._loop.start()

    async def stop(self) -> None:
        """Stop."""
        self._unsubscribe()
        await self._loop.stop()

    async def look(self) -> float | None:
        """Translate new events, a page at a time."""
        found = await self._engine.store.untranslated(
            self._application, self._wanted, seen=self._seen, limit=self._limit
        )
        is_due = found.events or found.upto - found.mark >= IDLE
        if is_due and not await self._commit(found):
            return 0.0  # another process was first; it may have translated fewer
        self._seen = found.upto
        if not found.is_last:
            return 0.0
        await asyncio.sleep(SETTLE_SECONDS)  # noqa: TID251 - the loop owns the time
        return None

    async def _commit(self, found: Untranslated) -> bool:
        """Translate a page and advance the cursor; `False` if another process did."""
        self._faults.hit("translate.read")
        failing: list[int] = []

        def body(tx: Transaction) -> bool:
            if not tx.advance(self._application, found.mark, found.upto):
                return False
            for event in found.events:
                failing[:] = [event.event.seq]
                self._translate(tx, event)
            self._faults.hit("translate.published")
            return True

        try:
            is_ours = await self._engine.transact(body)
        except Exception as error:
            self._limit = self._limit_after(error, is_begun=bool(failing))
            self._seldom.write(
                log.error,
                "translation failed",
                application=self._application,
                event_seq=failing[0] if failing else None,
                error_type=type(error).__name__,
            )
            raise
        self._limit = min(2 * self._limit, PAGE)
        return is_ours

    def _limit_after(self, error: Exception, *, is_begun: bool) -> int:
        """Return the page size after a failed page."""
        if not isinstance(error, TransactionTooLong):
            # One by one, so that a failing event does not block those before it.
            return 1
        # Before the first event it waited for the process that holds the cursor.
        return max(1, self._limit // 4) if is_begun else self._limit

    def _hear(self, what: Notification) -> None:
        if what & Notification.EVENTS:
            self._loop.poke()
