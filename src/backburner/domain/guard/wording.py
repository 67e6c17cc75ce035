"""How rules say which wordings they are about."""

from typing import NamedTuple


class Said(NamedTuple):
    """A way to say something: the words that it may begin with, and how it goes on."""

    rule: str
    firsts: str
    rest: str
    unless: str = ""
    """Words that make a reminder of it: "do not forget" is no order to forget."""


class Shape(NamedTuple):
    """Something that is seen in the signs, or in the middle of a word."""

    rule: str
    pattern: str


def gap(most: int) -> str:
    """Return a pattern of up to so many words in between."""
    return rf"(?:\w{{1,24}} ){{0,{most}}}"
