"""
The used parts of Discord's requests, and the answers to them.

Numbers are those of Discord's API; unknown fields are ignored, because Discord adds
fields without notice.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from backburner_apps.chat.discord import commands

PING: Final = 1
APPLICATION_COMMAND: Final = 2
PONG: Final[dict[str, Any]] = {"type": 1}
DEFERRED: Final[dict[str, Any]] = {"type": 5}
"""Discord shows "is thinking" to everybody until the reply is edited."""
EPHEMERAL: Final = 64
"""The flag of a message that only the user sees."""

Snowflake = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,20}$")]
Token = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.~-]{1,500}$")]
"""Restricted, because it becomes part of a URL's path."""


class _Incoming(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class DiscordUser(_Incoming):
    """The user of a command in a direct message."""

    id: Snowflake


class Member(_Incoming):
    """The user of a command in a server."""

    user: DiscordUser


class DiscordAttachment(_Incoming):
    """A file that the user uploaded to Discord."""

    filename: str = Field(max_length=1024)
    size: int = Field(ge=0)
    url: str = Field(max_length=2048)
    content_type: str = Field("", max_length=200)


class Resolved(_Incoming):
    """The objects to which the values of options refer."""

    attachments: Annotated[
        dict[Snowflake, DiscordAttachment], Field(max_length=10)
    ] = {}


class Option(_Incoming):
    """One option of a command and its value."""

    name: str = Field(max_length=32)
    value: str | int | float | bool | None = None


class Command(_Incoming):
    """A slash command with its options."""

    name: str = Field(max_length=32)
    options: list[Option] = Field([], max_length=25)
    resolved: Resolved = Resolved()

    def text(self, option: str) -> str:
        """Return the value of a text option, or an empty text if it is not given."""
        values = [given.value for given in self.options if given.name == option]
        return values[0] if values and isinstance(values[0], str) else ""

    @property
    def attachment(self) -> DiscordAttachment | None:
        """The attached file, if any."""
        return self.resolved.attachments.get(self.text(commands.ATTACHMENT))


class Ping(_Incoming):
    """A check by Discord that the endpoint exists."""

    type: Literal[1]


class Interaction(_Incoming):
    """A command in a channel."""

    id: Snowflake
    application_id: Snowflake
    type: Literal[2]
    token: Token
    data: Command
    channel_id: Snowflake
    guild_id: Snowflake | None = None
    member: Member | None = None
    user: DiscordUser | None = None

    @property
    def user_id(self) -> str:
        """The id of the user: in a server a member, in a direct message a user."""
        user = self.member.user if self.member else self.user
        return user.id if user else ""


Request = Annotated[Ping | Interaction, Field(discriminator="type")]


def message(content: str) -> dict[str, Any]:
    """Return the body of a message whose mentions notify nobody."""
    return {"content": content, "allowed_mentions": {"parse": []}}


def private(content: str) -> dict[str, Any]:
    """Return an answer that only the user sees."""
    return {"type": 4, "data": {**message(content), "flags": EPHEMERAL}}
