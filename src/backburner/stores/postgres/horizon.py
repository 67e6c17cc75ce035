"""Determines up to which event the event log is complete. Pure."""

from collections import deque
from typing import Final

MOST_NOTES: Final = 1_000
"""How many notes are kept while a transaction stays open, an even number. With fewer,
events become safe in larger steps when transactions end."""


class Horizon:
    """
    Finds the highest event below which no event can appear any more.

    Sequence numbers are assigned before transactions commit, so a higher one may be
    seen first. A transaction has an id by the time it gets a number. So the newest
    event seen is noted together with an id that is assigned after it: when every
    transaction below that id has ended, all events up to that one are visible.

    The upper end of a snapshot is no such id: transactions above it may be running.

    A list of running transactions does not include those that began after the query was
    sent, so it proves only the notes that existed then, however late its answer is.
    """

    def __init__(self) -> None:
        self._notes: deque[tuple[int, int, int]] = deque()
        """An event, an id that was assigned after it, and the number of the note."""
        self._noted = 0
        self.made = 0
        """The number of notes so far; read before the query is sent."""
        self.safe = 0
        """The highest event that is known to have all others below it."""

    def is_news(self, newest: int) -> bool:
        """Return whether an event is beyond everything noted so far."""
        return newest > self._noted

    def note(self, newest: int, drawn: int) -> None:
        """Note an event that was seen before the transaction id was assigned."""
        self._noted = max(self._noted, newest)
        self.made += 1
        self._notes.append((newest, drawn, self.made))
        if len(self._notes) > MOST_NOTES:
            # Every second one is dropped, but not the first and the newest.
            self._notes = deque([*self._notes][::2])

    def pass_over(self, oldest_running: int, *, made: int) -> None:
        """Record that all transactions below an id had ended when `made` was read."""
        while self._notes:
            newest, drawn, number = self._notes[0]
            if number > made or drawn > oldest_running:
                break
            self.safe = max(self.safe, newest)
            self._notes.popleft()
