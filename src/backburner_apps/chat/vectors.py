"""Packs vectors of texts for storage and compares them. Pure."""

import math
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

LEAST: Final = 0.1
"""Minimum cosine similarity; texts below it are considered unrelated."""


def packed(vector: Sequence[float]) -> str:
    """Return the normalised vector as text."""
    length = math.sqrt(sum(x * x for x in vector)) or 1.0
    return b64encode(array("f", (x / length for x in vector)).tobytes()).decode()


def nearest(vector: str, stored: Iterable[tuple[T, str]], most: int) -> list[T]:
    """Return the `most` items with the most similar vectors, best first."""
    target = _unpacked(vector)
    scored = [
        (sum(map(float.__mul__, target, other)), item)
        for item, text in stored
        if len(other := _unpacked(text)) == len(target)
    ]
    scored.sort(key=lambda pair: -pair[0])
    return [item for score, item in scored[:most] if score >= LEAST]


def _unpacked(text: str) -> "array[float]":
    vector: array[float] = array("f")
    vector.frombytes(b64decode(text))
    return vector
