"""Prints data to stdout and messages to stderr, without control characters."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

data = Console(soft_wrap=True, highlight=False)
words = Console(stderr=True, soft_wrap=True, highlight=False)


def say(message: str) -> None:
    """Print a message of one line to stderr."""
    words.print(Text(clean(message)))


def clean(value: Any) -> str:
    """Return a value without terminal control characters and line breaks."""
    return "".join(ch if ch.isprintable() else " " for ch in str(value))


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
    sys.stdout.write("".join(ch if ch in "\n\t" else clean(ch) for ch in text))
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
        table = [headings, *cleaned]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    else:
        lines = ["\t".join(row) for row in cleaned]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _escaped(text: str) -> str:
    """Return equivalent JSON with every invisible character escaped."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else json.dumps(ch)[1:-1] for ch in text)
