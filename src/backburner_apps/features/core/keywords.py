"""
Compares a CV with a job posting by their words, without a model.

Features use it for the answers that replace those of the mock provider.
"""

import re
from typing import Final, NamedTuple

MOST_REQUIREMENTS: Final = 12
LONGEST: Final = 80
ENOUGH: Final = 0.5
"""The share of a requirement's words that a CV must have to meet it."""
_PARTS = re.compile(r"[\n;•·|]|(?<=[.!?])\s|,\s+|\s(?:and|or)\s", re.IGNORECASE)
_LABEL = re.compile(r"^[^:]{0,40}:\s+")
_WORD = re.compile(r"[^\W_][\w+#.-]*[\w+#]|[^\W_]")
_COMMON_WORDS: Final = """
a about all also an and any are as at be been but by can candidate company etc
for from good great have has ideal in including into is it its job join
knowledge looking like more must need needs new nice of on or our plus position
required requirements role seeking seek should skill skills solid some strong
team that the their them they this to up us use using want we well who will with
work working year years you your experience experienced ability able senior
junior
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())


class Comparison(NamedTuple):
    """The requirements of a posting, by whether the CV mentions them."""

    met: tuple[str, ...]
    missing: tuple[str, ...]


def compare(cv: str, posting: str) -> Comparison:
    """Sort the requirements of a posting by whether the CV mentions them."""
    known = _words(cv)
    found = requirements(posting)
    met = tuple(one for one in found if _is_met(one, known))
    return Comparison(met, tuple(one for one in found if one not in met))


def requirements(posting: str) -> list[str]:
    """Return what a posting asks for, in its own words, in order."""
    parts = (_trimmed(part) for part in _PARTS.split(posting))
    found = dict.fromkeys(part for part in parts if _words(part))
    return list(found)[:MOST_REQUIREMENTS] or [posting.strip()[:LONGEST]]


def sentence_with(text: str, requirement: str) -> str:
    """Return the line of a text that has most words of a requirement."""
    wanted = _words(requirement)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    best = max(lines, key=lambda line: len(wanted & _words(line)), default="")
    return best[: 2 * LONGEST]


def _trimmed(part: str) -> str:
    plain = _LABEL.sub("", part.strip(" \t\r-*.,!?()\u2013\u2014"))
    words = plain.split()
    while words and words[0].lower() in _COMMON:
        words.pop(0)
    return " ".join(words)[:LONGEST].strip()


def _is_met(requirement: str, known: frozenset[str]) -> bool:
    wanted = _words(requirement)
    return len(wanted & known) >= ENOUGH * len(wanted)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower())) - _COMMON
