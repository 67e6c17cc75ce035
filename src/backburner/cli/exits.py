"""What the command line answers to the shell, and which error means what."""

from collections.abc import Mapping
from enum import IntEnum
from http import HTTPStatus
from typing import Final, NoReturn

import typer

from backburner.cli import printing
from backburner.client import ClientError


class Exit(IntEnum):
    """The exit codes; scripts rely on them."""

    OK = 0
    JOB_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    CONFLICT = 5
    LIMIT = 6
    UNAVAILABLE = 7
    TIMED_OUT = 8
    PROBLEMS = 9
    INTERRUPTED = 130
    KILLED = 137


_BY_STATUS: Final[Mapping[int, Exit]] = {
    HTTPStatus.UNAUTHORIZED: Exit.AUTH,
    HTTPStatus.FORBIDDEN: Exit.AUTH,
    HTTPStatus.NOT_FOUND: Exit.NOT_FOUND,
    HTTPStatus.CONFLICT: Exit.CONFLICT,
    HTTPStatus.TOO_MANY_REQUESTS: Exit.LIMIT,
}
_CONFLICTS: Final = frozenset({"IDEMPOTENCY_CONFLICT", "ILLEGAL_TRANSITION"})


def of(error: ClientError) -> Exit:
    """Say what an answer of the server means to the shell."""
    if error.code in _CONFLICTS:
        return Exit.CONFLICT
    if error.status is None or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Exit.UNAVAILABLE
    return _BY_STATUS.get(error.status, Exit.USAGE)


def leave(code: Exit, message: str | None = None) -> NoReturn:
    """End the program, with a line on stderr if there is something to say."""
    if message is not None:
        printing.say(f"backburner: {message}")
    raise typer.Exit(code)


def refuse(message: str) -> NoReturn:
    """End the program because it was called wrongly."""
    leave(Exit.USAGE, message)
