"""Commands for webhooks: endpoints, secrets and redelivery."""

from typing import Annotated

import typer

from backburner.cli import printing
from backburner.cli.applications import load
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.client import Endpoint
from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.settings import read
from backburner.startup import reach_of, read_apps

app = typer.Typer(
    no_args_is_help=True, help="List webhook endpoints, show secrets, send again."
)

HEADINGS = ("ENDPOINT", "STATE", "SECRET", "URL", "REASON")

EndpointArgument = Annotated[str, typer.Argument(metavar="ENDPOINT")]


@app.command("list")
def listing(
    *, as_json: JsonOption = False, url: UrlOption = None, api_key: KeyOption = None
) -> None:
    """List webhook endpoints, newest first."""
    with connect(url, api_key) as client:
        found = list(client.endpoints())
    if as_json:
        for endpoint in found:
            printing.write_json(endpoint)
        return
    printing.write_rows(
        HEADINGS,
        (
            (e["id"], _state(e), e["version"], e["url"], e["disabled_reason"])
            for e in found
        ),
    )


@app.command()
def secret(
    url: Annotated[str, typer.Argument(help="Callback URL or its origin.")],
    *,
    topic: Annotated[
        str, typer.Option(help="Topic of the application's callbacks.")
    ] = "ai-callback",
) -> None:
    """
    Print the secret that signs an application's callbacks to a URL's origin.

    It is derived from BACKBURNER_WEBHOOK_SECRET, without a server.
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
def rotate(
    endpoint: EndpointArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Create a new secret for an endpoint and print it. The old one signs for a day."""
    with connect(url, api_key) as client:
        rotated = client.rotate_endpoint(endpoint)
    if as_json:
        printing.write_json(rotated)
    else:
        printing.write_line(rotated["secrets"][0])


@app.command()
def enable(
    endpoint: EndpointArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Enable an endpoint again."""
    with connect(url, api_key) as client:
        _write(client.enable_endpoint(endpoint), as_json=as_json)


@app.command()
def disable(
    endpoint: EndpointArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Disable an endpoint: nothing is sent to it."""
    with connect(url, api_key) as client:
        _write(client.disable_endpoint(endpoint), as_json=as_json)


@app.command()
def replay(
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY")],
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Send a webhook again with the same id; print the delivery job."""
    with connect(url, api_key) as client:
        job = client.replay(delivery)
    if as_json:
        printing.write_json(job)
    else:
        printing.write_line(job["id"])


def _write(endpoint: Endpoint, *, as_json: bool) -> None:
    if as_json:
        printing.write_json(endpoint)
    else:
        printing.write_line(_state(endpoint))


def _state(endpoint: Endpoint) -> str:
    return "enabled" if endpoint["disabled_at"] is None else "disabled"
