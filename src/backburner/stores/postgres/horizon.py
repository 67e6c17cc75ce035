"""Up to where the overall event log is complete. Pure."""

from collections import deque


class Horizon:
    """
    Finds the highest event below which nothing can appear any more.

    Sequence numbers are drawn before they commit, so a higher one may be seen first.
    Whoever draws one has a transaction id by then. So we note the newest event that
    was seen together with an id drawn after it was: when every transaction below that
    id is over, all up to that event is there.

    A snapshot's own upper end is no such id: transactions above it may be running.

    A look at what runs says nothing about transactions that began after it was sent,
    so it can prove only the notes that existed by then, however late its answer is.
    """

    def __init__(self) -> None:
        self._notes: deque[tuple[int, int]] = deque()
        self._noted = 0
        self.made = 0
        """How many notes were made so far; read before a look is sent."""
        self.safe = 0
        """The highest event that is known to have all others below it."""

    def is_news(self, newest: int) -> bool:
        """Say whether an event lies beyond everything noted so far."""
        return newest > self._noted

    def note(self, newest: int, drawn: int) -> None:
        """Remember an event that was seen before the transaction id was drawn."""
        self._noted = max(self._noted, newest)
        self._notes.append((newest, drawn))
        self.made += 1

    def pass_over(self, oldest_running: int, *, made: int) -> None:
        """Learn that every transaction below an id was over when `made` was read."""
        provable = made - (self.made - len(self._notes))
        while provable > 0 and self._notes[0][1] <= oldest_running:
            self.safe = max(self.safe, self._notes.popleft()[0])
            provable -= 1
