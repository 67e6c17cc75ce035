"""
How the mock is told to fail.

By a mark in the prompt, which only the mock reads: `[[mock: 429 retry-after=2]]`. With
`times=` it fails that often for the same prompt and is well after that. Or by the
list that it is made with, one entry for each call.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from backburner.domain.errors import ConfigurationError

REMEMBERED: Final = 1_000
KINDS: Final = frozenset(
    {
        *("ok", "hang", "drip", "drop", "broken", "refuse"),
        *("nonsense", "nonsense-once", "too-long", "no-quota", "truncated"),
        *("misfit", "misfit-once"),
    }
)

_MARK = re.compile(r"\[\[mock:\s*([^\]]{1,100})\]\]", re.IGNORECASE)
_STATUS = re.compile(r"[45]\d\d")


class Mishap(NamedTuple):
    """How one call is to go wrong."""

    kind: str = "ok"
    """One of `KINDS`, or a status such as `503`."""
    retry_after: str | None = None
    times: int | None = None

    @property
    def status(self) -> int | None:
        """The status to answer with, if it is about one."""
        return int(self.kind) if _STATUS.fullmatch(self.kind) else None


WELL: Final = Mishap()


def read(text: str) -> Mishap:
    """Read an entry: `429 retry-after=2`, `hang`, `500 times=2`."""
    words = text.strip().lower().split()
    kind = "-".join(word for word in words if "=" not in word) or "ok"
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if kind not in KINDS and not _STATUS.fullmatch(kind):
        known = ", ".join(sorted(KINDS))
        raise ConfigurationError(f"the mock knows no {kind!r}; it knows {known}")
    times = options.get("times", "")
    return Mishap(
        kind, options.get("retry-after"), int(times) if times.isdigit() else None
    )


def without_marks(text: str) -> str:
    """Return a prompt as a model would get it."""
    return _MARK.sub(" ", text)


class Script:
    """What goes wrong next."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._entries = [read(entry) for entry in entries]
        self._seen: OrderedDict[str, int] = OrderedDict()

    def next(self, prompt: str) -> Mishap:
        """Say how the next call, with this prompt, is to go wrong."""
        if self._entries:
            return self._entries.pop(0)
        mark = _MARK.search(prompt)
        if mark is None:
            return WELL
        try:
            mishap = read(mark.group(1))
        except ConfigurationError:
            return WELL
        if mishap.times is None:
            return mishap
        seen = self._seen.pop(prompt, 0)
        self._seen[prompt] = seen + 1
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return mishap if seen < mishap.times else WELL
