"""Exit codes of the command line, and which error gives which code."""

import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from http import HTTPStatus
from typing import Final, NoReturn

import typer

from backburner.cli import printing
from backburner.client import ClientError
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.settings import PREFIX

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


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
_IS_PLAIN: Final = re.compile(
    "WRONG_VERSION_NUMBER|record layer failure", re.IGNORECASE
)
"""What OpenSSL says about an answer without TLS."""
_IS_AWAY: Final = re.compile("refused|timed out|timeout", re.IGNORECASE)
_CONFLICTS: Final = frozenset({"IDEMPOTENCY_CONFLICT", "ILLEGAL_TRANSITION"})


def of(error: ClientError) -> Exit:
    """Return the exit code for an error of the client."""
    if error.code in _CONFLICTS:
        return Exit.CONFLICT
    if error.status is None or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Exit.UNAVAILABLE
    return _BY_STATUS.get(error.status, Exit.USAGE)


def run(command: Callable[[], object]) -> None:
    """Run a command; if it fails, print the reason in one line."""
    try:
        command()
    except ConfigurationError as error:
        code, told = Exit.USAGE, with_options(str(error), sys.argv[1:])
    except ClientError as error:
        code, told = of(error), _told(error)
    else:
        return
    printing.say(f"backburner: {told}")
    sys.exit(code)


def with_options(message: str, arguments: Sequence[str]) -> str:
    """
    Name the option that was given instead of the environment variable it replaces.

    Only the beginning of a sentence is changed: there, a message names the setting
    whose value is wrong.
    """
    given = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    for option in given:
        variable = PREFIX + option.removeprefix("--").replace("-", "_").upper()
        name = re.escape(variable)
        message = re.sub(rf"(^|; ){name}(?=[ :=])", rf"\1{option}", message)
    return message


def _told(error: ClientError) -> str:
    if error.code == "UNREACHABLE":
        return f"{error}{_hint(str(error))}"
    if error.request_id is None:
        return str(error)
    hint = "; set BACKBURNER_API_KEY or use --api-key"
    is_denied = error.status == HTTPStatus.UNAUTHORIZED
    place = f"[{error.code}, request {error.request_id}]"
    return f"{error} {place}{hint if is_denied else ''}"


def _hint(reason: str) -> str:
    """Return what to do about a server that cannot be reached, if it is known."""
    if _IS_PLAIN.search(reason):
        return "; the server speaks plain HTTP: write http://"
    if _IS_AWAY.search(reason):
        return "; is it running? `backburner serve --dev` starts one"
    return ""


@contextmanager
def needing_the_store() -> Iterator[None]:
    """Exit with one line if the store cannot be used."""
    try:
        yield
    except (StoreUnavailable, OSError) as error:
        raise ConfigurationError(f"BACKBURNER_STORE: {error}") from error


def leave(code: Exit, message: str | None = None) -> NoReturn:
    """Exit with a code, and print the message, if any, to stderr."""
    if message is not None:
        printing.say(f"backburner: {message}")
    raise typer.Exit(code)


def refuse(message: str) -> NoReturn:
    """Exit with the code for wrong arguments."""
    leave(Exit.USAGE, message)
