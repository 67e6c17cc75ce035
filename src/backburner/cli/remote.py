"""Shared options and output of the commands that call a server."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Final, TypeVar

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.cli.exits import refuse
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
        *,
        uniform: str = "",
    ) -> None:
        """
        Print a list: with --json one JSON object per line, otherwise a table.

        `uniform` names a column that a terminal does not need if all rows are equal.
        """
        if self.as_json:
            for item in items:
                printing.write_json(item)
        else:
            printing.write_rows(headings, map(fields, items), uniform=uniform)


_SHARED: Final = (
    Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
    Parameter("url", Parameter.KEYWORD_ONLY, default=None, annotation=UrlOption),
    Parameter("api_key", Parameter.KEYWORD_ONLY, default=None, annotation=KeyOption),
)

_OF_GROUPS: Final = frozenset({"as_json", "url", "api_key", "store"})
"""The options that a group takes if it is called without a subcommand."""


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


def lists(app: typer.Typer) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command the `list` of a group, which runs without a subcommand too."""

    def register(command: Callable[..., None]) -> Callable[..., None]:
        app.command("list")(command)
        options = signature(command).parameters.values()
        shared = [option for option in options if option.name in _OF_GROUPS]

        def call(ctx: typer.Context, **named: Any) -> None:
            if ctx.invoked_subcommand is None:
                command(**named)
            elif any(named.values()):
                refuse(f"write the options after `{ctx.invoked_subcommand}`")

        context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        call.__signature__ = Signature([context, *shared])  # type: ignore[attr-defined]
        call.__annotations__ = {
            option.name: option.annotation for option in (context, *shared)
        }
        app.callback(invoke_without_command=True)(call)
        return command

    return register
