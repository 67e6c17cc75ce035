"""Determines up to which event the event log is complete. Pure."""

from collections import deque
from typing import Final

MOST_NOTES: Final = 1_000
"""How many notes are kept while transactions stay open, an even number. With fewer,
events become safe in larger steps."""
FEW_NOTES: Final = MOST_NOTES // 4
"""From how many notes on the steps may be larger than one."""


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
        self._step = 1
        """How many looks one note stands for: all the same, or old ones thin out."""
        self.made = 0
        """The number of notes so far; read before the query is sent."""
        self.safe = 0
        """The highest event that is known to have all others below it."""

    def is_news(self, newest: int) -> bool:
        """Return whether an event is beyond everything noted so far."""
        return newest > self._noted

    def note(self, newest: int, drawn: int) -> None:
        """Note an event that was seen before the transaction id was assigned."""
        notes = self._notes
        self.made += 1
        # A look that arrives late has lower ones. Higher ids prove the same later.
        newest = self._noted = max(self._noted, newest)
        drawn = max(notes[-1][1], drawn) if notes else drawn
        if len(notes) < FEW_NOTES:
            self._step = max(1, self._step // 2)
        if len(notes) > 1 and notes[-1][2] - notes[-2][2] < self._step:
            notes.pop()
        notes.append((newest, drawn, self.made))
        if len(notes) > MOST_NOTES:
            # Every second one is dropped, but not the first and the newest.
            self._notes = deque([*notes][::2])
            self._step *= 2

    def pass_over(self, oldest_running: int, *, made: int) -> None:
        """Record that all transactions below an id had ended when `made` was read."""
        while self._notes:
            newest, drawn, number = self._notes[0]
            if number > made or drawn > oldest_running:
                break
            self.safe = max(self.safe, newest)
            self._notes.popleft()
