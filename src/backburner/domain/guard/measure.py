"""
Measures the accuracy of the prompt-injection guard on labelled texts.

A corpus is split by the hashes of its texts: rules may be tuned on one half only, and
published figures are those of the other half.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from backburner.domain.guard.verdict import judge

THRESHOLDS: Final = (1, 2, 3, 4, 5, 6, 8, 10)


class Half(StrEnum):
    """Which part of a corpus is used."""

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
    """Each threshold, and how many texts score at least as much."""

    def share(self, threshold: int) -> float:
        """Return the share that reaches a threshold: recall, or false positives."""
        return dict(self.reached)[threshold] / self.texts


def half_of(text: str) -> Half:
    """Return a text's half: an even first byte of its SHA-256 means tuning."""
    return Half.HELD_OUT if _digest(text)[0] % 2 else Half.TUNING


def chosen(samples: Iterable[Sample], half: Half) -> list[Sample]:
    """Return the samples of a half, without duplicates."""
    once = {sample.text: sample for sample in samples}
    return [
        sample
        for text, sample in once.items()
        if half is Half.ALL or half_of(text) is half
    ]


def curves(samples: Collection[Sample]) -> list[Curve]:
    """Score samples; return one curve for attacks and one for harmless texts."""
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
    """Return a hash that identifies a corpus, independent of order and file format."""
    digests = sorted({_digest(sample.text).hex() for sample in samples})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
