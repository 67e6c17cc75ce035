"""What the commands that talk to a server have in common."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from backburner.cli.exits import refuse
from backburner.client import Client
from backburner.clock import SystemClock
from backburner.settings import read

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server; else BACKBURNER_URL."),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key", metavar="KEY", help="Else BACKBURNER_API_KEY."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write data as JSON, one object a line.")
]

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


PATIENCE_SECONDS = 2.0
"""A person, or a script that reads exit codes, is not kept waiting by a refusal."""


def connect(url: str | None, api_key: str | None = None) -> Client:
    """Return a client of the server that was meant."""
    settings = read(url=url, api_key=api_key)
    return Client(
        settings.url,
        api_key=settings.api_key.get_secret_value(),
        longest_pause=PATIENCE_SECONDS,
    )


def span(text: str) -> timedelta:
    """Read a span of time: `90`, `90s`, `5m`, `2h`, `1d`."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        refuse(f"{text!r}: write 30s, 5m, 2h or 1d")
    try:
        return float(found[1]) * _UNITS[found[2] or "s"]
    except OverflowError:
        refuse(f"{text!r} is too long")


def moment(text: str) -> datetime:
    """Read a time with its zone, such as 2030-01-31T09:00:00Z."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        refuse(f"{text!r}: write 2030-01-31T09:00:00Z")
    if found.tzinfo is None:
        refuse(f"{text!r} has no time zone: end it with Z")
    return found


def read_json(text: str) -> Any:
    """Read JSON as a server would."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (RecursionError, ValueError) as error:
        refuse(f"the input is not JSON: {error}")


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def now() -> datetime:
    """Return the time of this machine."""
    return datetime.fromtimestamp(SystemClock().now() / 1000, tz=UTC)
