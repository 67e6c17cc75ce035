"""
A text as a reader would take it, whatever was done to hide it from rules.

Everything here takes time in proportion to the text: tables, and patterns whose
repeats are of single characters or bounded.
"""

import base64
import binascii
import re
import unicodedata
from typing import Final, NamedTuple

MOST_LAYERS: Final = 2
"""How often what was decoded is decoded once more."""

_FLAG: Final = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
"""A flag such as Scotland's: an honest use of tag characters."""
_TAG: Final = re.compile("[\U000e0020-\U000e007e]+")
_TAG_OFFSET: Final = 0xE0000

_SEEN: Final = "\t\n\v\f\r\x85"
_CONTROLS: Final = "".join(
    re.escape(chr(code))
    for code in range(0x2100)
    if unicodedata.category(chr(code)) in {"Cc", "Cf"} and chr(code) not in _SEEN
)
_DROPPED: Final = re.compile(
    f"[{_CONTROLS}\u0300-\u036f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e01ef]+"
)
"""Controls, what has no width, variation selectors, and marks over other letters."""

_LIGATURE: Final = re.compile("[\ufdf0-\ufdff]")
"""Whole phrases in one character: they would make a text many times as long."""

_MARKED: Final = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")

_LOOKALIKES: Final = str.maketrans(
    "аеорсухікмтвнјѕһԁԛԝɡɑıοαερτυνικγχօոѵ",
    "aeopcyxikmtbhjshdqwgaioaeptuvikyxonv",
)
_FOREIGN: Final = "\u0250-\u058f"
_MIXED: Final = re.compile(f"[a-z][{_FOREIGN}]|[{_FOREIGN}][a-z]")
_LETTERS: Final = re.compile(r"[^\W\d_]+")

_SPACED: Final = re.compile(r"(?<![^\W_])(?:[^\W_][ .*|/_-]){3,}[^\W_](?![^\W_])")
_BETWEEN: Final = re.compile(r"[ .*|/_-]")

_LEET: Final = str.maketrans("013457@$!|", "oieastasil")
_LEET_SIGN: Final = re.compile(r"[a-z][013457@$!|]|[013457@$][a-z]")
_LEET_WORD: Final = re.compile(r"[a-z013457@$!|]{3,}")

_RUN: Final = re.compile(r"[A-Za-z0-9+/_-]{24,}")
_FEWEST_LETTERS: Final = 0.7

_APOSTROPHE: Final = re.compile(r"['\u2019\u02bc`]")
_SPACE: Final = re.compile(r"\s+")
_NO_WORD: Final = re.compile(r"[\W_]+")


class Normal(NamedTuple):
    """A text, made plain."""

    plain: str
    """Lower case, one space between words; signs are kept."""
    words: str
    """Words only."""
    respelt: str
    """Words once more, with spaced letters joined and digits read as letters."""
    is_disguised: bool
    """Whether something was undone that nobody needs who writes honestly."""
    has_tags: bool
    """Whether words were written in tag characters, which no screen shows."""


def normalise(text: str) -> Normal:
    """Make a text plain."""
    has_tags, is_disguised = False, False
    lower = _DROPPED.sub("", text).lower() if text.isascii() else text
    if not text.isascii():
        untagged = _TAG.sub(_untagged, _FLAG.sub("", text))
        has_tags = untagged != _FLAG.sub("", text)
        compatible = unicodedata.normalize("NFKC", _LIGATURE.sub(" ", untagged))
        lower = _MARKED.sub(_unmarked, _DROPPED.sub("", compatible).casefold())
        latin = _LETTERS.sub(_unmixed, lower) if _MIXED.search(lower) else lower
        is_disguised = has_tags or latin != lower
        lower = latin
    joined = _SPACED.sub(lambda found: _BETWEEN.sub("", found[0]), lower)
    unleet = _unleet(joined)
    words = _words(lower)
    respelt = words if unleet == lower else _words(unleet)
    return Normal(
        plain=_SPACE.sub(" ", lower),
        words=words,
        respelt=respelt,
        is_disguised=is_disguised or respelt != words,
        has_tags=has_tags,
    )


def payloads(text: str) -> list[str]:
    """Return what is written in base64 and reads as text, layer by layer."""
    found: list[str] = []
    layer = text
    for _ in range(MOST_LAYERS):
        decoded = [said for run in _RUN.findall(layer) if (said := _decoded(run))]
        if not decoded:
            break
        layer = "\n".join(decoded)
        found.append(layer)
    return found


def _untagged(found: re.Match[str]) -> str:
    return "".join(chr(ord(tag) - _TAG_OFFSET) for tag in found[0])


def _unmarked(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFD", found[0])[0]


def _unmixed(found: re.Match[str]) -> str:
    """Write a word that mixes alphabets with Latin letters only."""
    word = found[0]
    return word.translate(_LOOKALIKES) if _MIXED.search(word) else word


def _unleet(text: str) -> str:
    if not _LEET_SIGN.search(text):
        return text
    return _LEET_WORD.sub(_read, text)


def _read(found: re.Match[str]) -> str:
    word = found[0]
    return word.translate(_LEET) if _LEET_SIGN.search(word) else word


def _words(text: str) -> str:
    return _NO_WORD.sub(" ", _APOSTROPHE.sub("", text))


def _decoded(run: str) -> str | None:
    whole = run[: len(run) // 4 * 4].replace("-", "+").replace("_", "/")
    try:
        said = base64.b64decode(whole, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    letters = sum(ch.isalpha() or ch == " " for ch in said)
    return said if letters >= _FEWEST_LETTERS * len(said) else None
