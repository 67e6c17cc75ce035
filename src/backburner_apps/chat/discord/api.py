"""
Calls Discord's API to edit replies, and raises its errors as those of a job.

A reply has a webhook, `{application id}/{token}`, which is part of the URL. It is a
secret for 15 minutes: it is not logged, and errors do not contain URLs.
"""

from typing import Final
from urllib.parse import urlsplit

from backburner import Http, HttpResponse, Throttled
from backburner_apps.chat.discord.interaction import message

SECONDS: Final = 10.0
"""Timeout of a call."""
TOO_MANY_REQUESTS: Final = 429
LONGEST_WAIT: Final = 3_600.0
CODE: Final = "DISCORD_RATE_LIMIT"


class DiscordApi:
    """Edits and adds to replies."""

    def __init__(self, http: Http, base_url: str) -> None:
        self._http = http
        self._root = f"{base_url.rstrip('/')}/webhooks"
        self._hosts = [urlsplit(base_url).netloc]

    async def edit(self, webhook: str, content: str) -> None:
        """Replace the text of the reply."""
        checked(
            await self._http.patch(
                f"{self._root}/{webhook}/messages/@original",
                json=message(content),
                hosts=self._hosts,
                seconds=SECONDS,
            )
        )

    async def follow_up(self, webhook: str, content: str) -> None:
        """Add a message after the reply; a repeat adds it again."""
        checked(
            await self._http.post(
                f"{self._root}/{webhook}",
                json=message(content),
                hosts=self._hosts,
                seconds=SECONDS,
            )
        )


def checked(response: HttpResponse) -> None:
    """Raise the error of a job that corresponds to Discord's answer, if any."""
    if response.status == TOO_MANY_REQUESTS:
        raise Throttled(
            "Discord asks to wait", retry_after=_retry_after(response), code=CODE
        )
    response.raise_for_status()


def _retry_after(response: HttpResponse) -> float:
    """Return the seconds to wait: the body is more precise than the header."""
    try:
        seconds = response.json()["retry_after"]
        return min(max(0.0, float(seconds)), LONGEST_WAIT)
    except Exception:  # noqa: BLE001 - for any invalid body, use the header
        return 1.0 if response.retry_after is None else response.retry_after
