"""
Estimates the number of tokens in a text without a tokenizer.

The text is split as tokenizers split it before they look up tokens: into words, groups
of three digits, punctuation and lines. The count of a piece depends on its script and
its length. The constants were fitted to o200k on real texts; see docs/tokens.md.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

LONGEST_READ: Final = 200_000
"""Of a longer text only this many characters are read, as a sample of slices."""
SLICES: Final = 40

_PIECE: Final = re.compile(
    r"(?P<latin>[^\r\n\w]?(?:[A-Z\xc0-\xde]*[a-z\xdf-\xff]+|[A-Z\xc0-\xde]+)"
    r"|_(?:[A-Z]*[a-z]+|[A-Z]+))"
    r"|(?P<cyrillic>[^\r\n\w]?[\u0400-\u052f]+)"
    r"|(?P<chinese>[^\r\n\w]?[\u3400-\u4dbf\u4e00-\u9fff]+)"
    r"|(?P<syllables>[\u3040-\u30ff\uac00-\ud7af]+)"
    r"|(?P<letters>[^\r\n\w]?[^\W\d_A-Za-z\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+)"
    r"|(?P<digits>\d{1,3})"
    r"|(?P<signs> ?[^\s\w]+[\r\n/]*|_+)"
    r"|(?P<space>\s*[\r\n]+|\s+(?!\S)|\s)"
)


def _latin(piece: str) -> float:
    size = len(piece.lstrip(" _"))
    return 1 + 0.045 * max(0, size - 2) + 0.3 * max(0, size - 12)


def _cyrillic(piece: str) -> float:
    size = len(piece.lstrip(" "))
    return 1 + 0.16 * max(0.0, size - 2.5)


def _chinese(piece: str) -> float:
    return 0.25 + 0.67 * len(piece.lstrip(" "))


def _syllables(piece: str) -> float:
    return 0.7 * len(piece)


def _letters(piece: str) -> float:
    return 0.5 + 0.5 * len(piece.lstrip(" "))


def _signs(piece: str) -> float:
    size = len(piece)
    if piece.isascii():
        is_ruler = len(set(piece.strip())) == 1
        return 1 + (0.02 if is_ruler else 0.35) * max(0, size - 3)
    wide = sum(ch > "\uffff" for ch in piece)
    return max(1.0, 0.8 * size + 1.2 * wide)


def _one(_piece: str) -> float:
    return 1


_COUNTS: Final[Mapping[str | None, Callable[[str], float]]] = {
    "latin": _latin,
    "cyrillic": _cyrillic,
    "chinese": _chinese,
    "syllables": _syllables,
    "letters": _letters,
    "digits": _one,
    "signs": _signs,
    "space": _one,
}


def estimate(text: str) -> int:
    """Estimate the number of tokens in a text; an empty text has none."""
    if len(text) <= LONGEST_READ:
        return round(_weigh(text))
    step, size = len(text) // SLICES, LONGEST_READ // SLICES
    read = sum(_weigh(text[n * step : n * step + size]) for n in range(SLICES))
    return round(read * len(text) / LONGEST_READ)


def _weigh(text: str) -> float:
    return sum(_COUNTS[found.lastgroup](found[0]) for found in _PIECE.finditer(text))
