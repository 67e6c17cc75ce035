"""The command for lanes: rate limits of calls to providers."""

from operator import itemgetter

from backburner.cli.remote import Server, remote

HEADINGS = ("LANE", "STATE", "PACE", "CEILING", "IN USE", "LAST MINUTE", "UNTIL")
FIELDS = itemgetter(
    *("name", "state", "pace", "ceiling", "in_use", "last_minute", "parked_until")
)


@remote
def lanes(server: Server) -> None:
    """List the lanes of providers, their rates and which are paused."""
    server.write_all(HEADINGS, server.client.lanes(), FIELDS)
