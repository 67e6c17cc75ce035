"""
Where the house says what happens.

To whoever has configured structlog: our own processes, or the program that the house
lives in. Where nobody has, warnings and worse go to stderr; stdout is never ours.
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import structlog

LOGGED: Final = frozenset(
    {
        "address",
        "attempt",
        "capability",
        "code",
        "count",
        "crashes",
        "delay",
        "duration_ms",
        "error_type",
        "event",
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
        "schedule",
        "signal",
        "slots",
        "state",
        "status",
        "timestamp",
        "version",
        "worker",
    }
)

_told = structlog.get_logger("backburner")


class _Log:
    """A logger that asks at each line where lines go."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_told if structlog.is_configured() else _quiet(), name)


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
    return {key: _tame(value) for key, value in line.items() if key in LOGGED}


def _tame(value: Any) -> Any:
    """Keep control characters, which could forge lines, out of the log."""
    if isinstance(value, str) and not value.isprintable():
        return "".join(ch if ch.isprintable() else "?" for ch in value)
    return value


log = cast("structlog.stdlib.BoundLogger", _Log())
