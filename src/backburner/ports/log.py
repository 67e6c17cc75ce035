"""
Where Backburner says what happens.

To whoever has configured structlog: our own processes, or the program that Backburner
lives in. Where nobody has, warnings and worse go to stderr; stdout is never ours.
"""

import logging
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import structlog

from backburner.domain.errors import ConfigurationError

LOGGED: Final = frozenset(
    {
        "address",
        "application",
        "attempt",
        "capability",
        "code",
        "count",
        "crashes",
        "delay",
        "duration_ms",
        "error_type",
        "event",
        "event_seq",
        "generation",
        "job_id",
        "lane",
        "level",
        "loop",
        "method",
        "model",
        "pid",
        "provider",
        "queue",
        "queues",
        "request_id",
        "route",
        "rules",
        "schedule",
        "score",
        "signal",
        "slots",
        "state",
        "status",
        "timestamp",
        "version",
        "worker",
    }
)

LONGEST_VALUE: Final = 200
"""The most characters of a value under an application's key."""
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_of_apps: set[str] = set()
_told = structlog.get_logger("backburner")


def allow(app: str, keys: Iterable[str]) -> None:
    """Let log lines carry an application's keys, from now on in this process."""
    for key in keys:
        if not _KEY.fullmatch(key):
            raise ConfigurationError(
                f"application {app!r}: the log key {key!r} must be a letter followed "
                "by at most 63 letters, digits and _"
            )
        _of_apps.add(key)


class _Log:
    """
    A logger that asks at each line where lines go, and never raises.

    A host's own set-up may raise on any line: a closed stdout, a full disk, a processor
    with a fault. A line that cannot be written must not end what it tells of.
    """

    def __getattr__(self, name: str) -> Any:
        def write(*args: Any, **values: Any) -> None:
            with suppress(Exception):
                logger = _told if structlog.is_configured() else _quiet()
                getattr(logger, name)(*args, **values)

        return write


class Unbreakable:
    """A stream whose failures are nobody's: a full disk must not stop the work."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Take a stream, or what stderr is at the time; it may be closed or none."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write if it can be written."""
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError, AttributeError):
            return stream.write(text)
        return 0

    def flush(self) -> None:
        """Flush if it can be flushed."""
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


# One for all lines: structlog keeps a lock for each stream that it has met.
_ERRORS = cast("TextIO", Unbreakable())


def _quiet() -> Any:
    return structlog.wrap_logger(
        structlog.PrintLogger(_ERRORS),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            listed,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )


def listed(
    _logger: Any, _name: str, line: MutableMapping[str, Any]
) -> Mapping[str, Any]:
    """Keep the keys that are listed; what is the user's cannot reach a log."""
    kept = {key: _tame(value) for key, value in line.items() if key in LOGGED}
    if _of_apps and len(kept) < len(line):
        for key in _of_apps.intersection(line):
            kept[key] = _brief(line[key])
    return kept


def _brief(value: Any) -> Any:
    """Return a plain value, not too long; of anything else its type."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _tame(value[:LONGEST_VALUE])
    return type(value).__name__


def _tame(value: Any) -> Any:
    """Keep control characters, which could forge lines, out of the log."""
    if isinstance(value, str) and not value.isprintable():
        return "".join(ch if ch.isprintable() else "?" for ch in value)
    return value


log = cast("structlog.stdlib.BoundLogger", _Log())
