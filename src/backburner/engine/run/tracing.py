"""
The stack trace that is stored with a failed attempt, and the place of running code.

It has files, lines, functions and code, and the types of exceptions. It has neither
their messages nor the values of variables, which may be user data.
"""

import asyncio
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import FrameType, TracebackType
from typing import Final

from backburner.domain.jobs.outcome import Trace

MOST_FRAMES: Final = 30
"""Of each exception, the innermost frames."""
MOST_DEPTH: Final = 1_000
"""How many frames of a thread are looked at."""
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
_PACKAGES: Final = tuple(f"{_PATHS[name]}/" for name in ("purelib", "platlib"))
_STANDARD: Final = (
    *(f"{_PATHS[name]}/" for name in ("stdlib", "platstdlib")),
    "<frozen",
)
"""Folders of the standard library, in which packages may be installed."""
_LOOP: Final = f"{Path(asyncio.__file__).parent}/"


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
    return _short(innermost[0].filename, innermost[0].lineno)


def place_of_frame(frame: FrameType | None) -> str | None:
    """
    Return file, line and function of what an event loop runs, from its thread's frame.

    This is the innermost frame of the application, or else of a package. `None` if the
    loop runs neither.
    """
    found: FrameType | None = None
    for _ in range(MOST_DEPTH):
        if frame is None or frame.f_code.co_filename.startswith(_LOOP):
            break
        name = frame.f_code.co_filename
        if not name.startswith(_FOREIGN):
            found = frame
            break
        if found is None and not _is_standard(name):
            found = frame
        frame = frame.f_back
    if found is None:
        return None
    place = _short(found.f_code.co_filename, found.f_lineno)
    return f"{place} in {found.f_code.co_qualname}"


def _is_standard(filename: str) -> bool:
    return filename.startswith(_STANDARD) and not filename.startswith(_PACKAGES)


def _short(filename: str, line: int | None) -> str:
    # Not the whole path: it differs between machines.
    return f"{'/'.join(PurePath(filename).parts[-2:])}:{line}"
