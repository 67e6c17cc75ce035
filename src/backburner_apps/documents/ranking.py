"""Merges the results of two searches and extracts snippets. Pure functions."""

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from backburner_apps.documents.words import words


class Match(NamedTuple):
    """A chunk that one of the two searches found, and its score."""

    seq: int
    score: float


class Weights(NamedTuple):
    """The weights of the two lists of a search; 0 ignores a list."""

    words: float
    meaning: float


WEIGHTS: Final = Weights(1.0, 1.0)
"""Chosen by measurement: see docs/search.md."""
SPREADS: Final = {"minilm": 0.3}
"""By provider: the difference in similarity that counts as much as all words."""
SNIPPET: Final = 300
"""Maximum number of characters of a snippet."""
ELLIPSIS: Final = "…"

_WORD = re.compile(r"\S+")


def fuse(
    words: Sequence[Match],
    meaning: Sequence[Match] | None,
    weights: Weights = WEIGHTS,
    spread: float | None = None,
) -> dict[int, float]:
    """
    Return the score of each chunk of two lists, from 0 to 1, best first.

    A keyword match counts by its share of the question's words, so that a chunk with
    one of ten words hardly moves. A similarity counts by its distance from the lowest
    one of its list, in units of `spread`, which depends on the model; without `spread`,
    the most similar chunk counts 1. Equal scores keep the order of the first list.
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
    """Return matches scored by their distance from the lowest, and the maximum."""
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
    """Return the part of a text that contains most of the wanted words."""
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
    """Return a part of a text that begins a few words before `start`."""
    begin = max(0, min(start - size // 5, len(text) - size))
    if begin:
        begin = text.find(" ", begin, start) + 1 or start
    end = begin + size
    if end < len(text):
        end = max(text.rfind(" ", begin, end), begin + size // 2)
    before = ELLIPSIS if begin else ""
    after = ELLIPSIS if end < len(text) else ""
    return f"{before}{text[begin:end].strip()}{after}"
