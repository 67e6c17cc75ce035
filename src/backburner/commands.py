"""
Options, client, output and exit codes for the commands of applications.

Data is written to stdout with `write_…`, messages to stderr with `say`. A `ClientError`
that a command raises ends it with the matching exit code.
"""

from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.cli.exits import Exit, leave, refuse
from backburner.cli.following import write_all as write_pieces
from backburner.cli.printing import (
    clean,
    say,
    words,
    write_json,
    write_line,
    write_rows,
    write_text,
)
from backburner.ports.finding import Finding, Status

__all__ = [
    "Exit",
    "Finding",
    "JsonOption",
    "KeyOption",
    "Status",
    "UrlOption",
    "clean",
    "connect",
    "leave",
    "refuse",
    "say",
    "words",
    "write_json",
    "write_line",
    "write_pieces",
    "write_rows",
    "write_text",
]
