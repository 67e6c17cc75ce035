"""
Citations such as `[2]` in an answer: which are valid, and what may be shown. Pure.

An answer is shown only from its first valid citation on: until then it may turn out
that the sources do not support it.
"""

import re
from typing import Final

UNSUPPORTED: Final = "UNSUPPORTED"
"""What the model answers if the sources do not support an answer."""

_CITATION: Final = re.compile(
    r"([ \t]*)\[(\d{1,6}(?:\s{0,4}[,;]\s{0,4}\d{1,6}){0,20})\]"
)
_NUMBER: Final = re.compile(r"\d+")
_UNFINISHED: Final = re.compile(r"[ \t]*(?:\[[\d,;\s]{0,200})?\Z")


class CitedText:
    """Receives an answer in pieces and returns the text that may be shown."""

    def __init__(self, sources: int) -> None:
        """Take the number of sources; citations from 1 to that number are valid."""
        self._sources = sources
        self._raw = ""
        self._pending = ""
        self._shown: list[str] = []
        self._cited: set[int] = set()

    def take(self, piece: str) -> str:
        """Add a piece; return the text that may be shown now, perhaps empty."""
        self._raw += piece
        unfinished = _UNFINISHED.search(self._raw)
        cut = len(self._raw) if unfinished is None else unfinished.start()
        ready, self._raw = self._raw[:cut], self._raw[cut:]
        return self._release(ready)

    def end(self) -> str:
        """Return the rest that may be shown."""
        ready, self._raw = self._raw, ""
        return self._release(ready).rstrip()

    @property
    def cited(self) -> frozenset[int]:
        """The numbers of the sources that were cited so far."""
        return frozenset(self._cited)

    @property
    def text(self) -> str:
        """The text that was shown so far."""
        return "".join(self._shown).strip()

    def _release(self, ready: str) -> str:
        self._pending += _CITATION.sub(self._valid, ready)
        if not self._cited or self._pending.lstrip().startswith(UNSUPPORTED):
            return ""
        shown, self._pending = self._pending, ""
        if not self._shown:
            shown = shown.lstrip()
        self._shown.append(shown)
        return shown

    def _valid(self, found: re.Match[str]) -> str:
        """Return a citation without numbers of sources that do not exist."""
        numbers = dict.fromkeys(map(int, _NUMBER.findall(found[2])))
        valid = [number for number in numbers if 1 <= number <= self._sources]
        self._cited.update(valid)
        marks = "".join(f"[{number}]" for number in valid)
        return f"{found[1]}{marks}" if marks else ""
