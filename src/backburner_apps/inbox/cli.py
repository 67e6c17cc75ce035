"""`backburner inbox …`: registers the webhook with Telegram."""

from typing import Annotated, Any, Final

import typer

from backburner import ConfigurationError, read_settings
from backburner_apps.inbox.settings import InboxSettings

PATH: Final = "/telegram/webhook"
SECONDS: Final = 30.0
commands = typer.Typer(help="Manage the Telegram bot.")


@commands.callback()
def group() -> None:
    """Manage the Telegram bot."""


@commands.command("set-webhook")
def set_webhook(
    url: Annotated[
        str,
        typer.Argument(
            help="Public URL of this server, for example https://example.com."
        ),
    ],
) -> None:
    """Register this server with Telegram as the receiver of the bot's updates."""
    settings = read_settings(InboxSettings)
    for name, value in (
        ("TELEGRAM_BOT_TOKEN", settings.token),
        ("TELEGRAM_WEBHOOK_SECRET", settings.secret),
    ):
        if not value:
            raise ConfigurationError(f"{name} is not set: set-webhook needs it")
    hook = url.rstrip("/")
    hook = hook if hook.endswith(PATH) else f"{hook}{PATH}"
    body = _post(settings, hook)
    if body.get("ok") is not True:
        raise ConfigurationError(
            f"the Bot API refused the webhook: {body.get('description')}"
        )
    typer.echo(f"Telegram posts updates to {hook}")


def _post(settings: InboxSettings, hook: str) -> dict[str, Any]:
    import httpx2  # noqa: PLC0415 - for this command only

    body = {
        "url": hook,
        "secret_token": settings.secret,
        "allowed_updates": ["message"],
    }
    api = f"{settings.telegram_api_base_url}/bot{settings.token}/setWebhook"
    try:
        answer = httpx2.post(api, json=body, timeout=SECONDS, trust_env=False)
        result = answer.json()
    except (httpx2.HTTPError, ValueError) as error:
        # Not the error itself: it may contain the URL, which contains the token.
        raise ConfigurationError(
            f"the Bot API cannot be used: {type(error).__name__}; check "
            "TELEGRAM_API_BASE_URL"
        ) from None
    return result if isinstance(result, dict) else {}
