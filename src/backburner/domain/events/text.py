"""
The text that a job streams: how it is written as events and read back from them.

An epoch is one attempt, named by the number of its `job.started`, so it only grows.
The text of a job is its deltas, in order, put together. A delta at offset 0 begins the
text anew. An attempt that says again what readers have of an earlier one sends only
what is new; where it differs, it sends all of its own text, from offset 0 on.
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
    Write a text as the data of one delta or more.

    `offset` characters come before it; with `replaces` they are void, and it stands
    for all that was said.
    """
    for start in range(0, max(len(text), 1), LONGEST_DELTA):
        piece = text[start : start + LONGEST_DELTA]
        told = {"epoch": epoch, "offset": offset + start, "text": piece}
        yield {**told, "replaces": True} if replaces and not start else told


class Piece(NamedTuple):
    """What a reader of a text gets next."""

    text: str
    is_reset: bool = False
    """Whether all that came before is void: the text begins anew with this."""


class Draft(NamedTuple):
    """What a job has streamed so far."""

    state: JobState
    text: str


class Text:
    """Folds a job's events, in order, into its text."""

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
        Read an event; return what it changes about the text, if anything.

        An event that was read before changes nothing. `ValueError` if something is
        missing before it: this must not be taken for the text.
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
            raise ValueError(f"event {n} does not follow {self._length} characters")
        self._pieces.append(text)
        self._length += len(text)
        return Piece(text, is_reset) if text or is_reset else None
