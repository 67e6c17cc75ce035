"""
The text that a job streams: how it is written as events and read back from them.

An epoch is one attempt, named by the number of its `job.started`, so it only grows.
The text of a job is that of its latest epoch: its deltas, in order, put together.
Offsets and lengths count characters (code points).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from backburner.domain.event import DELTA, STARTED
from backburner.domain.job import JobState

LONGEST_DELTA: Final = 16_384


def deltas(
    text: str, *, epoch: int, offset: int, replaces: bool = False
) -> Iterator[dict[str, Any]]:
    """
    Write a text as the data of one delta or more.

    `offset` characters of the epoch come before it; with `replaces` they are void,
    and it stands for all that the epoch has said.
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
        if n <= self._seen or kind not in {STARTED, DELTA}:
            return None
        self._seen = n
        epoch = data.get("epoch", n)
        is_reset = False
        if epoch > self._epoch or data.get("replaces"):
            is_reset = self._length > 0
            self._epoch, self._length = epoch, 0
            self._pieces.clear()
        text = data.get("text", "")
        if data.get("offset", 0) != self._length:
            raise ValueError(f"event {n} does not follow {self._length} characters")
        self._pieces.append(text)
        self._length += len(text)
        return Piece(text, is_reset) if text or is_reset else None
