"""
The text that a job streams: written as events and assembled from them.

An epoch is one attempt, identified by the number of its `job.started` event, so epochs
only increase. A job's text is the concatenation of its deltas. A delta at offset 0 of a
new epoch starts the text again. An attempt that repeats the text of an earlier one
sends only the new part; if it differs, it sends its whole text from offset 0.
Offsets and lengths count characters (code points).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from backburner.domain.events.event import DELTA
from backburner.domain.jobs.job import JobState

LONGEST_DELTA: Final = 16_384


def deltas(
    text: str, *, epoch: int, offset: int, replaces: bool = False
) -> Iterator[dict[str, Any]]:
    """
    Split a text into the data of one or more delta events.

    `offset` is the length of the text before it. With `replaces`, the text replaces
    everything sent before.
    """
    for start in range(0, max(len(text), 1), LONGEST_DELTA):
        piece = text[start : start + LONGEST_DELTA]
        data = {"epoch": epoch, "offset": offset + start, "text": piece}
        yield {**data, "replaces": True} if replaces and not start else data


class Piece(NamedTuple):
    """The next part of the text for a reader."""

    text: str
    is_reset: bool = False
    """Whether the text starts again with this part."""


class Draft(NamedTuple):
    """What a job has streamed so far."""

    state: JobState
    text: str


class Text:
    """Assembles a job's text from its events, in order."""

    def __init__(self) -> None:
        self._seen = 0
        self._epoch = 0
        self._length = 0
        self._pieces: list[str] = []

    def __str__(self) -> str:
        """Return the text so far."""
        return "".join(self._pieces)

    def take(self, n: int, kind: str, data: Mapping[str, Any]) -> Piece | None:
        """
        Apply an event; return the change to the text, if any.

        An event that was already applied changes nothing. Raises `ValueError` if an
        event before it is missing, as the text would be wrong.
        """
        if n <= self._seen or kind != DELTA:
            return None
        self._seen = n
        text, epoch, offset = data["text"], data["epoch"], data["offset"]
        is_reset = False
        if data.get("replaces") or (epoch > self._epoch and not offset):
            is_reset = self._length > 0
            self._length = 0
            self._pieces.clear()
        self._epoch = epoch
        if offset != self._length:
            raise ValueError(
                f"event {n} does not follow {self._length} characters: it begins at "
                f"offset {offset}, so an earlier event is missing"
            )
        self._pieces.append(text)
        self._length += len(text)
        return Piece(text, is_reset) if text or is_reset else None
