"""The command for lanes: rate limits of calls to providers."""

from operator import itemgetter

import typer

from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.cli.remote import Server, remote

app = typer.Typer(help="List the lanes of providers, their rates and which are paused.")

HEADINGS = ("LANE", "STATE", "PACE", "CEILING", "IN USE", "LAST MINUTE", "UNTIL")
FIELDS = itemgetter(
    *("name", "state", "pace", "ceiling", "in_use", "last_minute", "parked_until")
)


@app.callback(invoke_without_command=True)
def without_command(
    ctx: typer.Context,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """List the lanes of providers, their rates and which are paused."""
    if ctx.invoked_subcommand is None:
        with connect(url, api_key) as client:
            _list(Server(client, as_json))


@app.command("list")
@remote
def listing(server: Server) -> None:
    """List the lanes of providers, their rates and which are paused."""
    _list(server)


def _list(server: Server) -> None:
    server.write_all(HEADINGS, server.client.lanes(), FIELDS)
