"""
Splits a reply into messages that Discord accepts.

Discord allows 2,000 characters in a message. Lengths are counted in UTF-16 code units,
as Discord's own programs do: this is never less than the number of characters.
"""

import re
import unicodedata
from typing import Final

LIMIT: Final = 2_000
MAX_PARTS: Final = 10
"""Maximum number of messages of one reply."""
CUT: Final = "\n… *(The rest of the reply is too long for Discord.)*"
MORE: Final = " …"
"""Ends the preview of a reply that is still being written."""

_FENCE: Final = "```"
_LANGUAGE: Final = re.compile(r"[\w+#.-]{0,20}(?=\n)")
_JOINER: Final = "\u200d"
_LONGEST_CLUSTER: Final = 40


def length(text: str) -> int:
    """Return the number of UTF-16 code units of a text."""
    return len(text) + sum(character > "\uffff" for character in text)


def split(text: str, limit: int = LIMIT, most: int = MAX_PARTS) -> list[str]:
    """
    Return the messages of a reply, none of them blank.

    A message ends at an empty line, a line break or a space if there is one in its
    second half. A code block that continues in the next message is closed and reopened.
    Text that does not fit into `most` messages is cut, and the last message says so.
    """
    parts: list[str] = []
    rest = text.strip()
    while rest and length(rest) > limit and len(parts) < most - 1:
        part, rest = _first(rest, limit)
        parts.append(part)
    if length(rest) > limit:
        rest = _first(rest, limit - length(CUT))[0] + CUT
    return [part for part in (*parts, rest) if part.strip()]


def preview(text: str, limit: int = LIMIT) -> str:
    """Return the first message of a reply that is still being written."""
    parts = split(text, limit - length(MORE), 2)
    return parts[0] + MORE if parts else ""


def _first(text: str, limit: int) -> tuple[str, str]:
    """Return a first message and what is left; the text is longer than the limit."""
    room = _prefix(text, limit - len(_FENCE) - 1)
    end = _boundary(text, room)
    part, rest = text[:end].rstrip(), text[end:].lstrip("\n")
    if text[end - 1] == " " or text[end : end + 1] == " ":
        rest = rest.removeprefix(" ")
    if part.count(_FENCE) % 2 == 0:
        return part, rest
    language = _LANGUAGE.match(part[part.rindex(_FENCE) + len(_FENCE) :] + "\n")
    opening = f"{_FENCE}{language[0] if language else ''}\n"
    return f"{part}\n{_FENCE}", opening + rest


def _prefix(text: str, units: int) -> int:
    """Return how many characters of a text fit into a number of code units."""
    used = 0
    for index, character in enumerate(text):
        used += 2 if character > "\uffff" else 1
        if used > units:
            return index
    return len(text)


def _boundary(text: str, room: int) -> int:
    """Return where to end a message: the best place in the second half of the room."""
    for separator in ("\n\n", "\n", " "):
        found = text.rfind(separator, room // 2, room)
        if found > 0:
            return found
    for end in range(room, max(1, room - _LONGEST_CLUSTER), -1):
        if not _joins(text[end - 1], text[end]):
            return end
    return room


def _joins(before: str, after: str) -> bool:
    """Return whether two characters are shown as one and must stay together."""
    is_mark = unicodedata.category(after).startswith("M")
    is_skin_tone = "\U0001f3fb" <= after <= "\U0001f3ff"
    return is_mark or is_skin_tone or _JOINER in {before, after}
