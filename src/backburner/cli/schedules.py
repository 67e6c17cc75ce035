"""The command for schedules."""

from operator import itemgetter

from backburner.cli.remote import Server, remote

HEADINGS = ("SCHEDULE", "CAPABILITY", "CRON", "ZONE", "MISSED", "NEXT", "LAST")
FIELDS = itemgetter(
    *("name", "capability", "cron", "timezone", "missed", "next_at", "last_at")
)


@remote
def schedules(server: Server) -> None:
    """List the schedules and when each fires next."""
    server.write_all(HEADINGS, server.client.schedules(), FIELDS)
