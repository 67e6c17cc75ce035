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
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[int, int]] = deque()
        self._noted = 0
        self.safe = 0
        """The highest event that is known to have all others below it."""

    def is_news(self, newest: int) -> bool:
        """Say whether an event lies beyond everything noted so far."""
        return newest > self._noted

    def note(self, newest: int, drawn: int) -> None:
        """Remember an event that was seen before the transaction id was drawn."""
        self._noted = max(self._noted, newest)
        self._looks.append((newest, drawn))

    def pass_over(self, oldest_running: int) -> None:
        """Learn that every transaction below an id is over."""
        while self._looks and self._looks[0][1] <= oldest_running:
            self.safe = max(self.safe, self._looks.popleft()[0])
