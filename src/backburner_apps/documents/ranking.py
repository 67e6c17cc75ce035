"""Puts the chunks of two searches in one order, and shows where one matches. Pure."""

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from backburner_apps.documents.words import words


class Match(NamedTuple):
    """A chunk that one of the two searches found, and how well it fits."""

    seq: int
    score: float


class Weights(NamedTuple):
    """What the two lists of a search count for; 0 leaves one out."""

    words: float
    meaning: float


WEIGHTS: Final = Weights(1.0, 1.0)
"""As it was measured: see docs/search.md."""
SPREADS: Final = {"minilm": 0.3}
"""By provider: which difference of similarities counts as much as all the words."""
SNIPPET: Final = 300
"""How many characters of a chunk a result shows."""
ELLIPSIS: Final = "…"

_WORD = re.compile(r"\S+")


def fuse(
    words: Sequence[Match],
    meaning: Sequence[Match] | None,
    weights: Weights = WEIGHTS,
    spread: float | None = None,
) -> dict[int, float]:
    """
    Return the score of each chunk of two lists, from 0 to 1, the best first.

    A match by words counts by its share of the question's words, so that a chunk which
    has one of ten hardly moves. A similarity counts by how far it is above the lowest
    one of its list, in units of `spread`, which depends on the model; without it, the
    most similar chunk counts 1. Equal scores keep the order of the first list.
    """
    above, most = _above_lowest(meaning or (), spread)
    total = weights.words + weights.meaning * most
    scores: dict[int, float] = {}
    for weight, members in ((weights.words, words), (weights.meaning, above)):
        if not weight:
            continue
        for seq, score in members:
            scores[seq] = scores.get(seq, 0.0) + weight * score / total
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def _above_lowest(
    matches: Sequence[Match], spread: float | None
) -> tuple[Sequence[Match], float]:
    """Return matches with their distance from the lowest, and the largest of these."""
    if not matches:
        return (), 0.0
    scores = [match.score for match in matches]
    lowest, highest = min(scores), max(scores)
    if highest == lowest:
        return [match._replace(score=1.0) for match in matches], 1.0
    unit = spread or highest - lowest
    above = [Match(seq, (score - lowest) / unit) for seq, score in matches]
    return above, (highest - lowest) / unit


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
