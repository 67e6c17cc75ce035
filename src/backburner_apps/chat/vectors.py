"""Vectors of texts as they are stored, and how alike two of them are. Pure."""

import math
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

LEAST: Final = 0.1
"""What is less alike than this has nothing to do with each other."""


def packed(vector: Sequence[float]) -> str:
    """Write a vector of length 1 in the direction of this one, as text."""
    length = math.sqrt(sum(x * x for x in vector)) or 1.0
    return b64encode(array("f", (x / length for x in vector)).tobytes()).decode()


def nearest(vector: str, stored: Iterable[tuple[T, str]], most: int) -> list[T]:
    """Return what has the most similar vectors, the most similar first."""
    wanted = _unpacked(vector)
    scored = [
        (sum(map(float.__mul__, wanted, found)), what)
        for what, text in stored
        if len(found := _unpacked(text)) == len(wanted)
    ]
    scored.sort(key=lambda pair: -pair[0])
    return [what for score, what in scored[:most] if score >= LEAST]


def _unpacked(text: str) -> "array[float]":
    vector: array[float] = array("f")
    vector.frombytes(b64decode(text))
    return vector
