"""The command that lists the capabilities of a server."""

from collections.abc import Mapping, Sequence
from typing import Any

from backburner.cli.remote import Server, remote
from backburner.client import CapabilityInfo

HEADINGS = ("CAPABILITY", "QUEUE", "ATTEMPTS", "INPUT", "DESCRIPTION")


@remote
def capabilities(server: Server) -> None:
    """List the capabilities of the server and the fields of their inputs."""
    server.write_all(HEADINGS, server.client.capabilities(), _row)


def _row(known: CapabilityInfo) -> Sequence[Any]:
    return (
        *(known["name"], known["queue"], known["max_attempts"]),
        *(_input(known["input_schema"]), known["description"]),
    )


def _input(schema: Mapping[str, Any]) -> str:
    """Return the fields of an object; of another input its type."""
    fields = schema.get("properties")
    return ", ".join(fields) if fields else str(schema.get("type", ""))
