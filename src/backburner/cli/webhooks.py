"""Commands for webhooks: endpoints, secrets and redelivery."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from backburner.cli import printing
from backburner.cli.applications import load
from backburner.cli.remote import Server, lists, remote
from backburner.client import Endpoint
from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.settings import read
from backburner.startup import reach_of, read_apps

app = typer.Typer(help="Manage webhook endpoints, their secrets and deliveries.")

HEADINGS = ("ENDPOINT", "STATE", "SECRET", "URL", "REASON")

EndpointArgument = Annotated[
    str, typer.Argument(metavar="ENDPOINT", help="Id, as `list` prints it.")
]


@lists(app)
@remote
def listing(server: Server) -> None:
    """List webhook endpoints, newest first."""
    server.write_all(HEADINGS, server.client.endpoints(), _row)


@app.command()
@remote
def create(
    server: Server,
    receiver: Annotated[
        str, typer.Argument(metavar="RECEIVER", help="URL of the receiver.")
    ],
) -> None:
    """Create an endpoint for a URL, if there is none, and print its secret."""
    created = server.client.create_endpoint(receiver)
    server.write(created, created["secrets"][0])


@app.command()
def secret(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Callback URL or its origin.")
    ],
    *,
    topic: Annotated[
        str, typer.Option(help="Topic of the application's callbacks.")
    ] = "ai-callback",
) -> None:
    """
    Print the secret that signs an application's callbacks to a URL's origin.

    It is derived from BACKBURNER_WEBHOOK_SECRET, without a server. Webhooks about
    jobs are signed with the secret of their endpoint: see `webhooks create`.
    """
    settings = read()
    apps = load(settings.apps)
    master = settings.webhook_secret.get_secret_value().encode()
    try:
        reach = reach_of(settings, apps, read_apps(apps))
        shown = CallbackSender(reach, master, SystemClock()).secret(topic, url)
    except ValueError as error:
        raise ConfigurationError(f"{url!r} is not a callback URL: {error}") from None
    printing.write_line(shown)


@app.command()
@remote
def rotate(server: Server, endpoint: EndpointArgument) -> None:
    """Create and print a new secret; the old one stays valid for a day."""
    rotated = server.client.rotate_endpoint(endpoint)
    server.write(rotated, rotated["secrets"][0])


@app.command()
@remote
def enable(server: Server, endpoint: EndpointArgument) -> None:
    """Enable an endpoint again."""
    enabled = server.client.enable_endpoint(endpoint)
    server.write(enabled, _state(enabled))


@app.command()
@remote
def disable(server: Server, endpoint: EndpointArgument) -> None:
    """Disable an endpoint: nothing is sent to it."""
    disabled = server.client.disable_endpoint(endpoint)
    server.write(disabled, _state(disabled))


@app.command()
@remote
def replay(
    server: Server,
    delivery: Annotated[
        str, typer.Argument(metavar="DELIVERY", help="Id of the delivery job.")
    ],
) -> None:
    """Send a webhook again with the same id; print the delivery job."""
    job = server.client.replay(delivery)
    server.write(job, job["id"])


def _row(endpoint: Endpoint) -> Sequence[Any]:
    return (
        *(endpoint["id"], _state(endpoint), endpoint["version"]),
        *(endpoint["url"], endpoint["disabled_reason"]),
    )


def _state(endpoint: Endpoint) -> str:
    return "enabled" if endpoint["disabled_at"] is None else "disabled"
