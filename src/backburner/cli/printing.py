"""Prints data to stdout and messages to stderr, without control characters."""

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from backburner.clock import SystemClock
from backburner.domain.escaping import escaped
from backburner.domain.printable import on_lines, on_one_line

data = Console(soft_wrap=True, highlight=False)
words = Console(stderr=True, soft_wrap=True, highlight=False)


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60}
GAP: Final = "  "
"""Separates the columns of a table."""


def say(message: str) -> None:
    """Print a message of one line to stderr."""
    words.print(Text(clean(message)))


def clean(value: Any) -> str:
    """Return a value without terminal control characters and line breaks."""
    return on_one_line(str(value))


def write_line(text: str) -> None:
    """Print one cleaned line of data."""
    sys.stdout.write(clean(text) + "\n")
    sys.stdout.flush()


def write_trace(job: Mapping[str, Any]) -> None:
    """Print the last stack trace of a job, if the server shows it."""
    failed = [attempt for attempt in job.get("attempts", ()) if attempt.get("trace")]
    if failed:
        write_line(f"attempt {failed[-1]['number']} of {job['id']} failed at:")
        write_text(failed[-1]["trace"])


def write_text(text: str) -> None:
    """Print a piece of a longer text at once, cleaned except for line breaks."""
    sys.stdout.write(on_lines(text))
    sys.stdout.flush()


def write_json(value: Any, *, indent: int | None = None) -> None:
    """Print data as JSON on one line, or indented."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    sys.stdout.write("\n".join(map(escaped, text.split("\n"))) + "\n")
    sys.stdout.flush()


def write_value(value: Any) -> None:
    """Print a job's output as JSON, indented on a terminal."""
    write_json(value, indent=2 if sys.stdout.isatty() else None)


def write_rows(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], *, uniform: str = ""
) -> None:
    """
    Print a table on a terminal, otherwise tab-separated lines.

    On a terminal, times are shown by their distance from now, and the column `uniform`
    is left out if several rows have the same value in it.
    """
    cleaned = [["" if field is None else clean(field) for field in row] for row in rows]
    if sys.stdout.isatty():
        now = SystemClock().now() / 1000
        shown = [[relative(field, now) for field in row] for row in cleaned]
        columns, fields = _without(uniform, headings, shown)
        lines = _table(columns, fields, shutil.get_terminal_size((0, 0)).columns)
    else:
        lines = ["\t".join(row) for row in cleaned]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def relative(field: str, now: float) -> str:
    """Return a time as `3m`, or `in 3m` if it is to come; other fields unchanged."""
    if _TIME.fullmatch(field) is None:
        return field
    away = datetime.fromisoformat(field).timestamp() - now
    size, unit = next(
        ((size, unit) for unit, size in _UNITS.items() if abs(away) >= size), (1, "s")
    )
    return f"{'in ' if away > 0 else ''}{int(abs(away) // size)}{unit}"


def _without(
    name: str, headings: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return a table without a column, if several rows have the same value in it."""
    if name not in headings or len(rows) < 2:  # noqa: PLR2004 - several
        return headings, rows
    place = headings.index(name)
    if len({row[place] for row in rows}) > 1:
        return headings, rows
    headings, *rows = [[*row[:place], *row[place + 1 :]] for row in (headings, *rows)]
    return headings, rows


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], limit: int
) -> list[str]:
    """
    Return the lines of a table, aligned and cut nowhere; 0 is no limit of their length.

    Where a row would be longer, empty columns are left out, and those that still do not
    fit stand on further, indented lines.
    """
    columns = [*zip(headings, *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    if rows and 0 < limit < sum(widths) + len(GAP) * (len(widths) - 1):
        columns = [column for column in columns if any(column[1:])]
        widths = [max(map(len, column)) for column in columns]
    parts = _parts(widths, limit)
    lines = []
    for row in zip(*columns, strict=True):
        cells = [*map(str.ljust, row, widths)]
        for part in parts:
            text = GAP.join(cells[part]).rstrip()
            if text or part.start == 0:
                lines.append(text if part.start == 0 else f"{GAP}{GAP}{text}")
    return lines


def _parts(widths: Sequence[int], limit: int) -> list[slice]:
    """Divide the columns among as few lines as have room for them."""
    starts, used = [0], -len(GAP)
    for place, width in enumerate(widths):
        used += len(GAP) + width
        if 0 < limit < used and place > starts[-1]:
            starts.append(place)
            used = 2 * len(GAP) + width
    return [slice(*ends) for ends in zip(starts, [*starts[1:], None], strict=True)]
