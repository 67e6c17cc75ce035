"""The positions up to which applications have translated the engine's events."""

from typing import Protocol

from backburner.domain.events.translation import Selection, Untranslated


class TranslationStore(Protocol):
    """A cursor in the event log for each application that translates events."""

    async def begin_translation(self, application: str) -> None:
        """Set an application's cursor to the newest event, unless it has one."""
        ...

    async def untranslated(
        self, application: str, wanted: Selection, *, seen: int, limit: int
    ) -> Untranslated:
        """
        Return events after the cursor and after `seen`, in order.

        The caller knows that there are none up to `seen`. A bounded part of the log is
        read. No event appears later at or below `upto`.
        """
        ...
