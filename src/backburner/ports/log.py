"""
The platform's log.

Lines go to structlog as our own processes or the host program configured it. Without a
configuration, warnings and errors go to stderr; nothing is written to stdout.
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
        "place",
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
"""The maximum length of a value under an application's key."""
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_of_apps: set[str] = set()
_told = structlog.get_logger("backburner")


def allow(app: str, keys: Iterable[str]) -> None:
    """Allow an application's keys in log lines of this process."""
    for key in keys:
        if not _KEY.fullmatch(key):
            raise ConfigurationError(
                f"application {app!r}: the log key {key!r} must be a letter followed "
                "by at most 63 letters, digits and _"
            )
        _of_apps.add(key)


class _Log:
    """
    A logger that uses the current configuration for each line and never raises.

    The host's configuration may raise on any line: a closed stdout, a full disk, a
    faulty processor. A line that cannot be written must not stop the work that it
    describes.
    """

    def __getattr__(self, name: str) -> Any:
        def write(*args: Any, **values: Any) -> None:
            with suppress(Exception):
                logger = _told if structlog.is_configured() else _quiet()
                getattr(logger, name)(*args, **values)

        return write


class Unbreakable:
    """A stream that ignores failures: a full disk must not stop the work."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Wrap a stream, by default the current stderr, which may be closed."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write; ignore failures."""
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError, AttributeError):
            return stream.write(text)
        return 0

    def flush(self) -> None:
        """Flush; ignore failures."""
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


# One object for all lines: structlog keeps a lock for each stream that it has used.
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
    """Keep only the listed keys, so that user text cannot reach a log."""
    kept = {key: _tame(value) for key, value in line.items() if key in LOGGED}
    if _of_apps and len(kept) < len(line):
        for key in _of_apps.intersection(line):
            kept[key] = _brief(line[key])
    return kept


def _brief(value: Any) -> Any:
    """Return a plain value, shortened; for anything else the name of its type."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _tame(value[:LONGEST_VALUE])
    return type(value).__name__


def _tame(value: Any) -> Any:
    """Remove control characters, which could forge log lines."""
    if isinstance(value, str) and not value.isprintable():
        return "".join(ch if ch.isprintable() else "?" for ch in value)
    return value


log = cast("structlog.stdlib.BoundLogger", _Log())
