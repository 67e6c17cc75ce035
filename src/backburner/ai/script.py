"""
How the mock is instructed to fail.

Either by a mark in the prompt, which only the mock reads: `[[mock: 429
retry-after=2]]`; with `times=` it fails that often for the same prompt and succeeds
after that. Or by a list that is passed at its creation, with one entry for each call.
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
    """How one call fails."""

    kind: str = "ok"
    """One of `KINDS`, or an HTTP status such as `503`."""
    retry_after: str | None = None
    times: int | None = None

    @property
    def status(self) -> int | None:
        """The HTTP status to respond with, if the kind is one."""
        return int(self.kind) if _STATUS.fullmatch(self.kind) else None


WELL: Final = Mishap()


def read(text: str) -> Mishap:
    """Parse an entry: `429 retry-after=2`, `hang`, `500 times=2`."""
    words = text.strip().lower().split()
    kind = "-".join(word for word in words if "=" not in word) or "ok"
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if kind not in KINDS and not _STATUS.fullmatch(kind):
        known = ", ".join(sorted(KINDS))
        raise ConfigurationError(
            f"the mock does not know the failure {kind!r}; use one of {known}"
        )
    times = options.get("times", "")
    return Mishap(
        kind, options.get("retry-after"), int(times) if times.isdigit() else None
    )


def without_marks(text: str) -> str:
    """Return a prompt without the mock's marks."""
    return _MARK.sub(" ", text)


class Script:
    """Decides how the next calls fail."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._entries = [read(entry) for entry in entries]
        self._seen: OrderedDict[str, int] = OrderedDict()

    def next(self, prompt: str) -> Mishap:
        """Return how the next call fails, given its prompt."""
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
