"""Options and helpers of the commands that call a server."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from backburner.cli.exits import refuse
from backburner.client import Client
from backburner.client.connection import DEFAULT_URL
from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError
from backburner.environment import has_place, without_passwords
from backburner.settings import read

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="URL of the server. Default: BACKBURNER_URL."
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--api-key", metavar="KEY", help="API key. Default: BACKBURNER_API_KEY."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON, one object per line.")
]

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
QUOTING: Final = "Put text in quotes: '\"yes\"'"

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


PATIENCE_SECONDS = 2.0
"""Commands do not retry a refused request: the user or script decides."""


def connect(url: str | None, api_key: str | None = None) -> Client:
    """Return a client for the chosen server."""
    settings = read(url=url, api_key=api_key)
    _check(settings.url)
    return Client(
        settings.url,
        api_key=settings.api_key.get_secret_value(),
        longest_pause=PATIENCE_SECONDS,
    )


def _check(url: str) -> None:
    """Refuse what cannot be the URL of a server, and say what to write."""
    shown = without_passwords(url) if "//" in url else url.rpartition("@")[2]
    wrong = f"BACKBURNER_URL={shown!r}"
    if not url.startswith(("http://", "https://")):
        is_host = "://" not in url and has_place(f"http://{url}")
        example = f"http://{shown}" if is_host else DEFAULT_URL
        raise ConfigurationError(f"{wrong} is not a URL: write {example}")
    if not has_place(url):
        raise ConfigurationError(f"{wrong} is not a URL: write {DEFAULT_URL}")
    whole = shown.rstrip("/")
    base = whole.removesuffix("/v1")
    if base != whole:
        raise ConfigurationError(f"{wrong}: write the URL without /v1: {base}")


def span(text: str) -> timedelta:
    """Parse a duration: `90`, `90s`, `5m`, `2h`, `1d`."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        refuse(f"{text!r} is not a duration: write 30s, 5m, 2h or 1d")
    try:
        return float(found[1]) * _UNITS[found[2] or "s"]
    except OverflowError:
        refuse(f"the duration {text!r} is too long: write a shorter one")


def moment(text: str, others: str = "") -> datetime:
    """
    Parse a time with a time zone, such as 2030-01-31T09:00:00Z.

    `others` is what the option accepts besides, for the message.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        refuse(f"{text!r} is not a time: write {others}2030-01-31T09:00:00Z")
    if found.tzinfo is None:
        refuse(f"{text!r} has no time zone: end it with Z")
    return found


def read_text(path: Path, name: str) -> str:
    """Read a text file; `name` is how the command calls it."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        refuse(f"{name}: {path} does not exist")
    except OSError as error:
        refuse(f"{name}: {path} cannot be read: {error.strerror}")
    except UnicodeError:
        refuse(f"{name}: {path} is not UTF-8 text: convert it to UTF-8")


def read_json(text: str) -> Any:
    """Parse JSON as strictly as the server does."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (RecursionError, ValueError) as error:
        hint = "" if text.lstrip()[:1] in {"{", "["} else f". {QUOTING}"
        refuse(f"the input is not JSON: {error}{hint}")


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def now() -> datetime:
    """Return the current time of this machine."""
    return datetime.fromtimestamp(SystemClock().now() / 1000, tz=UTC)
