"""
The newest events of one selection, read once for all readers that follow them.

Readers that are at the end of the log share its next page. A reader that is behind, at
first or because it is slow, reads the log by itself until it is at the end.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from backburner.domain.events.event import Event
from backburner.ports.store.events import EventPage

T = TypeVar("T")

KEPT: Final = 500
"""A reader that is further behind than so many events reads the log by itself."""
SETTLE_SECONDS: Final = 0.01
"""Notifications in quick succession are handled by one read."""
READER_SECONDS: Final = 0.001
"""With many readers the pause between reads grows, because sending takes time."""
SLOWEST_SECONDS: Final = 0.25

Read = Callable[[int], Awaitable[EventPage]]
"""Reads the page after a cursor."""


class SharedPage:
    """The events above the number `after` and up to `upto`, for many readers."""

    __slots__ = ("_made", "after", "events", "upto")

    def __init__(self, after: int, events: Sequence[Event], upto: int) -> None:
        self.after = after
        self.events = events
        self.upto = upto
        self._made: dict[Callable[..., Any], Any] = {}

    def beyond(self, cursor: int) -> "SharedPage":
        """Return the page without what a reader with this cursor has seen."""
        if cursor <= self.after:
            return self
        events = [event for event in self.events if event.seq > cursor]
        return SharedPage(cursor, events, self.upto)

    def made(self, make: Callable[[Sequence[Event]], T]) -> T:
        """Return what a function makes of the events; it is called once per page."""
        if make not in self._made:
            self._made[make] = make(self.events)
        found: T = self._made[make]
        return found


class Tail:
    """Follows the end of the log while it has readers."""

    def __init__(self, read: Read, *, poll: float) -> None:
        self._read = read
        self._poll = poll
        self.notified = asyncio.Event()
        """To be set, from the first reader on, when there may be new events."""
        self._pages: deque[SharedPage] = deque()
        self._size = 0
        self._begin = 0
        """The cursor from which all events are known."""
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.readers = 0
        self.cursors: dict[object, int] = {}
        """Up to where each reader has read that has been at the end of the log."""

    async def next(self, cursor: int) -> SharedPage | None:
        """
        Wait for the next events after a cursor.

        Return `None` if the reader has to read them by itself: it is too far behind, or
        the read for all of them failed.
        """
        if self._task is None:
            self._start(cursor)
        elif cursor < self._begin and not self._pages:
            # It began at a cursor that is beyond the end of the log.
            self._start(cursor)
            self.notified.set()
        task = self._task
        while task is self._task and cursor >= self._begin:
            if (page := self._find(cursor)) is not None:
                return page.beyond(cursor)
            await self._changed.wait()
        return None

    def stop(self) -> None:
        """Stop reading; the next reader begins anew."""
        if self._task is not None:
            self._task.cancel()
        self._end()

    def _start(self, cursor: int) -> None:
        self.stop()
        self._pages.clear()
        self._size, self._begin = 0, cursor
        self._task = asyncio.create_task(self._follow(cursor), name="tail")

    def _end(self) -> None:
        self._task = None
        self._wake()

    def _find(self, cursor: int) -> SharedPage | None:
        """Return the first page with events after the cursor; the newest come first."""
        found = None
        for page in reversed(self._pages):
            if page.upto <= cursor:
                break
            found = page
        return found

    async def _follow(self, cursor: int) -> None:
        is_last = True  # whoever started this has read up to the cursor
        try:
            while True:
                if is_last:
                    await self._rest()
                self.notified.clear()
                page = await self._read(cursor)
                if page.events:
                    self._add(page)
                cursor, is_last = page.upto, page.is_last
        except Exception:  # noqa: BLE001 - readers repeat the read and get its error
            self._end()

    def _add(self, page: EventPage) -> None:
        # Pages without events are left out, so this one begins where the last one ends.
        after = self._pages[-1].upto if self._pages else self._begin
        self._pages.append(SharedPage(after, page.events, page.upto))
        self._size += len(page.events)
        # One reader needs none of them: a process may have a thousand tails.
        read_by_all = min(self.cursors.values(), default=0)
        while len(self._pages) > 1 and (
            self._size > KEPT or self._pages[0].upto <= read_by_all
        ):
            oldest = self._pages.popleft()
            self._size -= len(oldest.events)
            self._begin = oldest.upto
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _rest(self) -> None:
        """Wait until there may be new events."""
        pause = max(SETTLE_SECONDS, min(SLOWEST_SECONDS, READER_SECONDS * self.readers))
        await asyncio.sleep(pause)  # noqa: TID251 - as below
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await self.notified.wait()
