"""Prints data to stdout and messages to stderr, without control characters."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from backburner.domain.printable import on_lines, on_one_line

data = Console(soft_wrap=True, highlight=False)
words = Console(stderr=True, soft_wrap=True, highlight=False)


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
    sys.stdout.write("\n".join(map(_escaped, text.split("\n"))) + "\n")
    sys.stdout.flush()


def write_value(value: Any) -> None:
    """Print a job's output as JSON, indented on a terminal."""
    write_json(value, indent=2 if sys.stdout.isatty() else None)


def write_rows(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table on a terminal, otherwise tab-separated lines."""
    cleaned = [["" if field is None else clean(field) for field in row] for row in rows]
    if sys.stdout.isatty():
        lines = _table(headings, cleaned, shutil.get_terminal_size((0, 0)).columns)
    else:
        lines = ["\t".join(row) for row in cleaned]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


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


def _escaped(text: str) -> str:
    """Return equivalent JSON with every invisible character escaped."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else json.dumps(ch)[1:-1] for ch in text)
