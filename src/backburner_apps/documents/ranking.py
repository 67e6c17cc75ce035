"""Puts two lists of chunks into one order, and shows where a chunk matches. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from backburner_apps.documents.words import words

K: Final = 10
"""How much more the first places of a list count than the later ones."""


class Weights(NamedTuple):
    """What the two lists of a search count for; 0 leaves one out."""

    words: float
    meaning: float


WEIGHTS: Final = Weights(1.0, 2.0)
"""As it was measured: see docs/search.md."""
SNIPPET: Final = 300
"""How many characters of a chunk a result shows."""
ELLIPSIS: Final = "…"

_WORD = re.compile(r"\S+")


def fuse(lists: Iterable[tuple[float, Sequence[int]]]) -> dict[int, float]:
    """
    Return the score of each member of weighted lists, the best first.

    It is the reciprocal rank fusion of the lists: a place counts `1 / (K + place)`.
    """
    scores: dict[int, float] = {}
    for weight, members in lists:
        if not weight:
            continue
        for place, member in enumerate(members, 1):
            scores[member] = scores.get(member, 0.0) + weight / (K + place)
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


def snippet(text: str, wanted: Collection[str], size: int = SNIPPET) -> str:
    """Return the part of a text that has most of the wanted words."""
    text = " ".join(text.split())
    if len(text) <= size:
        return text
    marks = [
        (match.start(), found)
        for match in _WORD.finditer(text)
        if (found := set(words(match[0])).intersection(wanted))
    ]
    start = max(
        (at for at, _ in marks),
        key=lambda at: (len(_within(marks, at, size)), -at),
        default=0,
    )
    return _cut(text, start, size)


def _within(marks: Sequence[tuple[int, set[str]]], start: int, size: int) -> set[str]:
    return set().union(*(found for at, found in marks if start <= at < start + size))


def _cut(text: str, start: int, size: int) -> str:
    """Cut a part out of a text, some words before its start, at the ends of words."""
    begin = max(0, min(start - size // 5, len(text) - size))
    if begin:
        begin = text.find(" ", begin, start) + 1 or start
    end = begin + size
    if end < len(text):
        end = max(text.rfind(" ", begin, end), begin + size // 2)
    before = ELLIPSIS if begin else ""
    after = ELLIPSIS if end < len(text) else ""
    return f"{before}{text[begin:end].strip()}{after}"
