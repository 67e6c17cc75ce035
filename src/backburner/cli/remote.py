"""Shared options and output of the commands that call a server."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Final, TypeVar

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.client import Client

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Server:
    """The server that a command calls, and whether output is JSON."""

    client: Client
    as_json: bool

    def write(self, answer: Any, line: str) -> None:
        """Print a response as JSON with --json, otherwise a line."""
        if self.as_json:
            printing.write_json(answer)
        else:
            printing.write_line(line)

    def write_all(
        self,
        headings: Sequence[str],
        items: Iterable[T],
        fields: Callable[[T], Sequence[Any]],
    ) -> None:
        """Print a list: with --json one JSON object per line, otherwise a table."""
        if self.as_json:
            for item in items:
                printing.write_json(item)
        else:
            printing.write_rows(headings, map(fields, items))


_SHARED: Final = (
    Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
    Parameter("url", Parameter.KEYWORD_ONLY, default=None, annotation=UrlOption),
    Parameter("api_key", Parameter.KEYWORD_ONLY, default=None, annotation=KeyOption),
)


def remote(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--json`, `--url` and `--api-key`, and its first argument."""

    @wraps(command)
    def call(
        *args: Any, as_json: bool, url: str | None, api_key: str | None, **named: Any
    ) -> None:
        with connect(url, api_key) as client:
            command(Server(client, as_json), *args, **named)

    _, *own = signature(command).parameters.values()
    shown = [*own, *_SHARED]
    call.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in shown}
    return call
