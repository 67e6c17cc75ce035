"""How far applications have translated the engine's events into their own."""

from typing import Protocol

from backburner.domain.events.translation import Selection, Untranslated


class TranslationStore(Protocol):
    """A mark in the event log for each application that translates it."""

    async def begin_translation(self, application: str) -> None:
        """Set an application's mark at the newest event, unless it has one."""
        ...

    async def untranslated(
        self, application: str, wanted: Selection, *, seen: int, limit: int
    ) -> Untranslated:
        """
        Return events above the mark and above `seen`, in order.

        `seen` is up to where the caller knows that there are none. A bounded part of
        the log is looked through. No event appears later at or below `upto`.
        """
        ...
