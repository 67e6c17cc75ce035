"""Decides which attachments of Discord users are accepted."""

from typing import Final
from urllib.parse import urlsplit

from backburner_apps.chat.discord.interaction import DiscordAttachment
from backburner_apps.chat.shapes import MAX_BYTES

HOSTS: Final = ("cdn.discordapp.com", "media.discordapp.net")
"""The only hosts that attachments are fetched from, redirects included."""


def refusal(attachment: DiscordAttachment) -> str | None:
    """Return what to tell the user if an attachment cannot be read."""
    if not _is_of_discord(attachment.url):
        return "❌ Only files that were uploaded to Discord can be attached."
    if attachment.size > MAX_BYTES:
        return "❌ The attachment is too large: at most 25 MB are read."
    return None


def _is_of_discord(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_plain = parts.username is None and parts.port in {None, 443}
    except ValueError:
        return False
    return parts.scheme == "https" and is_plain and parts.hostname in HOSTS
