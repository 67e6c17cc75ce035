"""Value types and helpers for writing the guard's rules."""

from typing import NamedTuple


class Wording(NamedTuple):
    """A phrase: its possible first words, and a pattern for the rest."""

    rule: str
    firsts: str
    rest: str
    unless: str = ""
    """Preceding words that reverse the meaning, as in "do not forget"."""


class Shape(NamedTuple):
    """A pattern that is matched with punctuation, or within words."""

    rule: str
    pattern: str


def gap(most: int) -> str:
    """Return a pattern for at most `most` words in between."""
    return rf"(?:\w{{1,24}} ){{0,{most}}}"
