"""`backburner chat register`: registers the slash commands with Discord."""

from typing import Annotated, Final, NoReturn

import typer

from backburner import ConfigurationError, read_settings
from backburner_apps.chat.discord.commands import COMMANDS
from backburner_apps.chat.discord.settings import DiscordSettings

SECONDS: Final = 30.0
USAGE, NOT_FOUND, AUTH, LIMIT, UNAVAILABLE = 2, 3, 4, 6, 7
"""Exit codes, as for the commands of the platform."""
EXITS: Final = {401: AUTH, 403: AUTH, 404: NOT_FOUND, 429: LIMIT}

commands = typer.Typer(help="Set up the chat application.")


@commands.callback()
def group() -> None:
    """Set up the chat application."""


@commands.command()
def register(
    guild: Annotated[
        str,
        typer.Option(help="Id of the only Discord server to register in."),
    ] = "",
) -> None:
    """
    Register the slash commands of the Discord application, replacing existing ones.

    Needs DISCORD_APPLICATION_ID and DISCORD_BOT_TOKEN.
    """
    settings = read_settings(DiscordSettings)
    token = settings.discord_bot_token.get_secret_value()
    for name, value in (
        ("DISCORD_APPLICATION_ID", settings.discord_application_id),
        ("DISCORD_BOT_TOKEN", token),
    ):
        if not value:
            raise ConfigurationError(f"{name} is not set: it is needed to register")
    if guild and not guild.isdecimal():
        _leave(USAGE, "--guild: must be the id of a server, digits only")
    names = put_commands(settings, token, guild)
    typer.echo(f"Registered: {', '.join(f'/{name}' for name in names)}")


def put_commands(settings: DiscordSettings, token: str, guild: str) -> list[str]:
    """Replace the commands that Discord knows; return their names."""
    import httpx2  # noqa: PLC0415 - `--help` needs none

    root = f"{settings.discord_api_base_url.rstrip('/')}/applications"
    place = f"/guilds/{guild}" if guild else ""
    try:
        response = httpx2.put(
            f"{root}/{settings.discord_application_id}{place}/commands",
            json=COMMANDS,
            headers={"Authorization": f"Bot {token}"},
            timeout=SECONDS,
            follow_redirects=False,
        )
    except httpx2.HTTPError as error:
        _leave(UNAVAILABLE, f"Discord does not answer ({type(error).__name__})")
    if response.status_code != httpx2.codes.OK:
        _refuse(response.status_code, response.headers.get("retry-after", ""))
    return [command["name"] for command in response.json()]


def _refuse(status: int, retry_after: str) -> NoReturn:
    wait = f"; try again in {retry_after[:10]} s" if retry_after else ""
    unavailable = status >= 500  # noqa: PLR2004 - of the server
    code = UNAVAILABLE if unavailable else EXITS.get(status, USAGE)
    _leave(code, f"Discord refused the commands with status {status}{wait}")


def _leave(code: int, message: str) -> NoReturn:
    typer.echo(f"backburner: {message}", err=True)
    raise typer.Exit(code)
