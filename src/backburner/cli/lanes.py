"""The command for lanes: rate limits of calls to providers."""

from operator import itemgetter

import typer

from backburner.cli.remote import Server, lists, remote

app = typer.Typer(help="List the provider lanes, their rates and which are parked.")

HEADINGS = ("LANE", "STATE", "PACE", "CEILING", "IN USE", "LAST MINUTE", "UNTIL")
FIELDS = itemgetter(
    *("name", "state", "pace", "ceiling", "in_use", "last_minute", "parked_until")
)


@lists(app)
@remote
def listing(server: Server) -> None:
    """List the provider lanes, their rates and which are parked."""
    server.write_all(HEADINGS, server.client.lanes(), FIELDS)
