"""
Normalises texts, undoing tricks that hide words from the rules.

All functions take time in proportion to the text: they use tables, and patterns whose
repeats are bounded or of single characters.
"""

import base64
import binascii
import re
import unicodedata
from typing import Final, NamedTuple

MOST_LAYERS: Final = 2
"""How many layers of encoding are decoded."""

_FLAG: Final = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
"""A flag such as Scotland's: a legitimate use of tag characters."""
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
"""Controls, zero-width characters, variation selectors and combining marks."""

_LIGATURE: Final = re.compile("[\ufdf0-\ufdff]")
"""Single characters for whole phrases, which would make a text much longer."""

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
    """A normalised text."""

    plain: str
    """Lower case, with one space between words; punctuation is kept."""
    words: str
    """Words only."""
    respelt: str
    """Words with spaced letters joined and digits read as letters."""
    is_disguised: bool
    """Whether a disguise was removed that honest texts do not need."""
    has_tags: bool
    """Whether words were written in tag characters, which are invisible."""


def normalise(text: str) -> Normal:
    """Normalise a text."""
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
    joined = _SPACED.sub(lambda match: _BETWEEN.sub("", match[0]), lower)
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
    """Return the texts that are encoded in base64, one for each layer."""
    layers: list[str] = []
    layer = text
    for _ in range(MOST_LAYERS):
        decoded = [plain for run in _RUN.findall(layer) if (plain := _decoded(run))]
        if not decoded:
            break
        layer = "\n".join(decoded)
        layers.append(layer)
    return layers


def _untagged(match: re.Match[str]) -> str:
    return "".join(chr(ord(tag) - _TAG_OFFSET) for tag in match[0])


def _unmarked(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFD", match[0])[0]


def _unmixed(match: re.Match[str]) -> str:
    """Replace look-alike letters in a word that mixes alphabets by Latin ones."""
    word = match[0]
    return word.translate(_LOOKALIKES) if _MIXED.search(word) else word


def _unleet(text: str) -> str:
    if not _LEET_SIGN.search(text):
        return text
    return _LEET_WORD.sub(_read, text)


def _read(match: re.Match[str]) -> str:
    word = match[0]
    return word.translate(_LEET) if _LEET_SIGN.search(word) else word


def _words(text: str) -> str:
    return _NO_WORD.sub(" ", _APOSTROPHE.sub("", text))


def _decoded(run: str) -> str | None:
    whole = run[: len(run) // 4 * 4].replace("-", "+").replace("_", "/")
    try:
        text = base64.b64decode(whole, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    letters = sum(ch.isalpha() or ch == " " for ch in text)
    return text if letters >= _FEWEST_LETTERS * len(text) else None
