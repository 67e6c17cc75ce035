"""Capabilities, queues and routes that Discord adds to the application `chat`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from backburner import Backburner, ConfigurationError, Keep, Queue
from backburner_apps.chat.discord.replying import (
    DRAFT_QUEUE,
    QUEUE,
    show_draft,
    show_reply,
)
from backburner_apps.chat.settings import ChatSettings

OWN: Final = (show_reply, show_draft)
QUEUES: Final = (
    Queue(QUEUE, keep=Keep(succeeded=timedelta(hours=24))),
    Queue(DRAFT_QUEUE, keep=Keep(succeeded=timedelta(hours=1))),
)


def routes(backburner: Backburner) -> Sequence[Any]:
    """Return the routes; none without DISCORD_PUBLIC_KEY."""
    settings = backburner.settings_of(ChatSettings)
    if not settings.discord_public_key:
        return []
    if not settings.discord_application_id:
        raise ConfigurationError(
            "DISCORD_APPLICATION_ID is not set: application 'chat' needs it with "
            "DISCORD_PUBLIC_KEY"
        )
    try:
        from backburner_apps.chat.discord import routes as discord  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"DISCORD_PUBLIC_KEY: needs the Python package {error.name!r}, which is "
            'not installed: pip install "backburner[discord]"'
        ) from None
    return discord.routes(backburner)
