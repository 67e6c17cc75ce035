"""Determines up to which event the event log is complete. Pure."""

from collections import deque


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
        self._notes: deque[tuple[int, int]] = deque()
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
        self._notes.append((newest, drawn))
        self.made += 1

    def pass_over(self, oldest_running: int, *, made: int) -> None:
        """Record that all transactions below an id had ended when `made` was read."""
        provable = made - (self.made - len(self._notes))
        while provable > 0 and self._notes[0][1] <= oldest_running:
            self.safe = max(self.safe, self._notes.popleft()[0])
            provable -= 1
