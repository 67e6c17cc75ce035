"""Up to where the overall event log is complete. Pure."""

from collections import deque


class Horizon:
    """
    Finds the highest event below which nothing can appear any more.

    Sequence numbers are drawn before they commit, so a higher one may be seen first.
    Of each look we keep the newest event and the id that the next transaction would
    get; when every transaction below that id is over, all up to that event is there.
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[int, int]] = deque()
        self._safe = 0

    def look(self, newest: int, oldest_running: int, next_to_run: int) -> int:
        """Take one snapshot's figures; return the highest safe event."""
        self._looks.append((newest, next_to_run))
        while self._looks and self._looks[0][1] <= oldest_running:
            self._safe = max(self._safe, self._looks.popleft()[0])
        return self._safe
