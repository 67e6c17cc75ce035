"""
The stack trace that is stored with a failed attempt.

It has files, lines, functions and code, and the types of exceptions. It has neither
their messages nor the values of variables, which may be user data.
"""

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import TracebackType
from typing import Final

from backburner.domain.jobs.outcome import Trace

MOST_FRAMES: Final = 30
"""Of each exception, the innermost frames."""
MOST_ERRORS: Final = 5
"""The maximum number of exceptions of a chain or group."""
LONGEST: Final = 8_000
_PATHS = sysconfig.get_paths()
_FOREIGN: Final = (
    f"{Path(__file__).parents[2]}/",
    *(f"{_PATHS[name]}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<frozen",
)
"""Folders whose code is not the application's."""


def trace_of(error: BaseException) -> Trace | None:
    """Return the stack trace of an exception; `None` if it was never raised."""
    try:
        parts = [_part(one) for one in _chain(error)]
        place = _place(error.__traceback__)
    except Exception:  # noqa: BLE001 - an exception's own attributes may raise
        return None
    if place is None:
        return None
    text = "".join(reversed(parts))[-LONGEST:]
    return Trace(text.encode("utf-8", "replace").decode("utf-8"), place)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its causes and its members, up to a limit."""
    seen: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting and len(seen) < MOST_ERRORS:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen[id(one)] = one
        yield one
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        hidden = None if one.__suppress_context__ else one.__context__
        waiting.append(one.__cause__ or hidden)


def _part(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__, limit=-MOST_FRAMES)
    return "".join([*traceback.format_list(frames), f"{type(error).__name__}\n"])


def _place(trace: TracebackType | None) -> str | None:
    """Return file and line of the innermost frame, preferably of the application."""
    frames = traceback.extract_tb(trace, limit=-MOST_FRAMES)
    app_frames = [frame for frame in frames if not frame.filename.startswith(_FOREIGN)]
    innermost = (app_frames or frames)[-1:]
    if not innermost:
        return None
    # Not the whole path: it differs between machines.
    name = "/".join(PurePath(innermost[0].filename).parts[-2:])
    return f"{name}:{innermost[0].lineno}"
