"""Escapes text for Telegram's parse modes and splits it into messages."""

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from backburner_apps.inbox.settings import ParseMode

LONGEST: Final = 4096
"""Maximum length of a message in UTF-16 units, without tags."""
_BEYOND_ONE_UNIT: Final = 0xFFFF
_JOINER: Final = "\u200d"
_SKIN: Final = range(0x1F3FB, 0x1F400)
_SPECIAL: Final = re.compile(r"([_*`\[])")
_TOKENS: Final = {
    "HTML": re.compile(r"</?\w+>|&\w+;|.", re.DOTALL),
    "Markdown": re.compile(r"\\[_*`\[]|.", re.DOTALL),
}


def escape(text: str, mode: ParseMode) -> str:
    """Escape a user's text so that Telegram shows it unchanged."""
    if mode == "HTML":
        return html.escape(text, quote=False)
    return _SPECIAL.sub(r"\\\1", text)


def bold(text: str, mode: ParseMode) -> str:
    """Return a user's text in bold; Markdown allows no escapes within bold text."""
    escaped = escape(text, mode)
    return f"<b>{escaped}</b>" if mode == "HTML" else escaped


def split(text: str, mode: ParseMode, limit: int = LONGEST) -> tuple[str, str]:
    """
    Return the first message of a text and the remaining text.

    The message ends at the end of a line or word if there is one in its second half,
    and never within a tag, an entity or an emoji. Open tags are closed and reopened.
    """
    tokens = _TOKENS[mode].findall(text)
    cut = _cut(tokens, limit)
    if cut == len(tokens):
        return text, ""
    opened = list(_open_tags(tokens[:cut]))
    closing = "".join(f"</{tag[1:]}" for tag in reversed(opened))
    rest = "".join(tokens[cut:]).lstrip()
    first = "".join(tokens[:cut]).rstrip()
    return first + closing, "".join(opened) + rest if rest else ""


def _cut(tokens: Sequence[str], limit: int) -> int:
    """Return how many tokens are in the first message."""
    length = line = word = anywhere = 0
    half = 0
    for place, token in enumerate(tokens):
        length += _units(token)
        half = place if length <= limit // 2 else half
        if not _continues(tokens, place):
            anywhere = place
        if length > limit:
            good = [at for at in (line, word) if at > half]
            return good[0] if good else anywhere or place or 1
        line = place + 1 if "\n" in token else line
        word = place + 1 if token.isspace() else word
    return len(tokens)


def _units(token: str) -> int:
    if len(token) > 1:
        return 0 if token.startswith("<") else 1
    return 2 if ord(token) > _BEYOND_ONE_UNIT else 1


def _continues(tokens: Sequence[str], place: int) -> bool:
    """Return whether a token belongs to the character before it."""
    token = tokens[place]
    is_part = len(token) == 1 and (
        token == _JOINER
        or ord(token) in _SKIN
        or unicodedata.category(token) in {"Mn", "Me"}
    )
    return is_part or (place > 0 and tokens[place - 1] == _JOINER)


def _open_tags(tokens: Sequence[str]) -> Iterator[str]:
    opened: list[str] = []
    for token in tokens:
        if len(token) > 1 and token.startswith("</"):
            opened.pop()
        elif len(token) > 1 and token.startswith("<"):
            opened.append(token)
    yield from opened
