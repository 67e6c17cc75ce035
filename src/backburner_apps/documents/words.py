"""
The words by which chunks are found, the same on both databases. Pure.

A word is folded to lower case and to its stem, so that "stored" finds "storing".
Chinese, Japanese and Korean are written without spaces: there the words are pairs of
adjacent characters. What stands in nearly every sentence is left out.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from backburner_apps.documents.chunking import CJK

MAX_WORD: Final = 40
"""Longer words are truncated; they are found by their beginnings."""
MOST_WORDS: Final = 32
"""Maximum number of words of a question that are searched."""
_STOP_WORDS: Final = """
    a about after all also am an and any are as at be because been before being but by
    can could did do does doing for from had has have having he her hers him his how i
    if in into is it its just me more most my no nor not of on one only or other our
    out over own same she should so some such than that the their them then there
    these they this those through to too under until up very was we were what when
    where which while who whom whose why will with would you your
    aber als am an auch auf aus bei bin bis da das dass dem den der des die dies diese
    diesem diesen dieser dieses doch du durch ein eine einem einen einer eines er es
    für hat haben ich ihr ihre im ist ja kann man mit nach nicht noch nur oder sich
    sie sind so über um und uns unter vom von vor war waren was wenn werden wie wir
    wird wo wurde wurden zu zum zur
    """
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())

_LETTER = re.compile(f"[{CJK}]")
_RUN = re.compile(rf"[{CJK}]+|[^\W_{CJK}]+")
_VOWEL = re.compile("[aeiouy]")
_DOUBLED: Final = frozenset("bdfgmnprt")


def is_cjk(text: str) -> bool:
    """Return whether a text is, by a third or more, Chinese, Japanese or Korean."""
    letters = sum(letter.isalpha() for letter in text)
    return letters > 0 and len(_LETTER.findall(text)) * 3 >= letters


def words(text: str) -> Iterator[str]:
    """
    Yield the words of a text in its order, repeated ones too.

    The last character of a Chinese run is a word, too, so that every character begins
    a word: one alone is found by the words that begin with it.
    """
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _LETTER.match(run):
            yield from _pairs(run)
        elif run not in STOP_WORDS:
            yield stem(run[:MAX_WORD])


def query_words(text: str) -> list[str]:
    """Return the distinct words of a question, at most `MOST_WORDS`."""
    found = dict.fromkeys(words(text))
    pairs = [word for word in found if not is_letter(word)]
    return (pairs or [*found])[:MOST_WORDS]


def is_letter(word: str) -> bool:
    """Return whether a word is a single Chinese, Japanese or Korean character."""
    return len(word) == 1 and _LETTER.match(word) is not None


def _pairs(run: str) -> Iterator[str]:
    for at in range(len(run)):
        yield run[at : at + 2]


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of an English word: "stor" for "stored"."""
    if not word.isascii() or not word.isalpha():
        return word
    word = _singular(word)
    for ending in ("ingly", "edly", "ing", "ed", "ly", "ment", "ness"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 2 and _VOWEL.search(rest):  # noqa: PLR2004
            word = _single(rest)
            break
    if word.endswith(("sion", "tion")) and len(word) > len("action"):
        word = word.removesuffix("ion")
    word = word.removesuffix("e") if len(word) > 3 else word  # noqa: PLR2004
    return f"{word[:-1]}i" if word.endswith("y") else word


def _singular(word: str) -> str:
    if len(word) <= 3 or word.endswith(("ss", "us", "is")):  # noqa: PLR2004
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word.removesuffix("s")


def _single(word: str) -> str:
    """Undo the doubling of "stopped"."""
    is_doubled = word[-1] in _DOUBLED and word.endswith(word[-1] * 2)
    return word[:-1] if is_doubled else word
