"""
How good the guard is, on texts whose nature is known.

A corpus is split by its texts' hashes: rules may be tuned on one half only, and figures
count on the other.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from backburner.domain.guard.verdict import judge

THRESHOLDS: Final = (1, 2, 3, 4, 5, 6, 8, 10)


class Half(StrEnum):
    """Which texts of a corpus are looked at."""

    ALL = "all"
    TUNING = "tuning"
    HELD_OUT = "held-out"


class Sample(NamedTuple):
    """A text, and whether it is an attack."""

    text: str
    is_attack: bool


class Curve(NamedTuple):
    """How many texts of one kind reach each threshold."""

    is_attack: bool
    texts: int
    reached: Sequence[tuple[int, int]]
    """Thresholds, and how many texts score so much or more."""

    def share(self, threshold: int) -> float:
        """Return which part reaches a threshold: recall, or false positives."""
        return dict(self.reached)[threshold] / self.texts


def half_of(text: str) -> Half:
    """Return a text's half: where its SHA-256 begins with an even byte, for tuning."""
    return Half.HELD_OUT if _digest(text)[0] % 2 else Half.TUNING


def chosen(samples: Iterable[Sample], half: Half) -> list[Sample]:
    """Return the samples of a half, each text once."""
    once = {sample.text: sample for sample in samples}
    return [
        sample
        for text, sample in once.items()
        if half is Half.ALL or half_of(text) is half
    ]


def curves(samples: Collection[Sample]) -> list[Curve]:
    """Judge samples; return attacks' curve and harmless texts', if there are any."""
    scores: dict[bool, list[int]] = {True: [], False: []}
    for sample in samples:
        scores[sample.is_attack].append(judge(sample.text).score)
    return [
        Curve(
            is_attack,
            len(found),
            [(least, sum(score >= least for score in found)) for least in THRESHOLDS],
        )
        for is_attack, found in scores.items()
        if found
    ]


def fingerprint(samples: Iterable[Sample]) -> str:
    """Return what tells a corpus from others, whatever file it came in."""
    digests = sorted({_digest(sample.text).hex() for sample in samples})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
