"""The settings of `chat` in Discord."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner import ServiceUrl

API_BASE_URL: Final = "https://discord.com/api/v10"


def _check_key(value: str) -> str:
    if value and not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise ValueError(
            "must be the application's public key: 64 hexadecimal digits, as the "
            "Discord developer portal shows it"
        )
    return value


def _check_id(value: str) -> str:
    if value and not re.fullmatch(r"[0-9]{1,20}", value):
        raise ValueError("must be the id of the Discord application: digits only")
    return value


class DiscordSettings(BaseSettings):
    """The Discord application and the tenant of its users."""

    model_config = SettingsConfigDict(frozen=True, populate_by_name=True)

    discord_public_key: Annotated[str, AfterValidator(_check_key)] = Field(
        "", validation_alias="DISCORD_PUBLIC_KEY"
    )
    """
    Public key of the Discord application, 64 hexadecimal digits, which verifies
    Discord's requests. Default: none; without it `/discord/interactions` is not served.
    """
    discord_application_id: Annotated[str, AfterValidator(_check_id)] = Field(
        "", validation_alias="DISCORD_APPLICATION_ID"
    )
    """Id of the Discord application. Default: none. Example: `1172942837463920640`."""
    discord_bot_token: SecretStr = Field(
        SecretStr(""), validation_alias="DISCORD_BOT_TOKEN"
    )
    """
    Token of the application's bot, used only by `backburner chat register`. Default:
    none.
    """
    discord_api_base_url: ServiceUrl = Field(
        API_BASE_URL, validation_alias="DISCORD_API_BASE_URL"
    )
    """Base URL of Discord's API. Default: `https://discord.com/api/v10`."""
    discord_tenant: str = Field(
        "default", validation_alias="DISCORD_TENANT", min_length=1, max_length=100
    )
    """
    Tenant of all Discord users, whose personalities answer them; the user is
    `discord:{id}`. Default: `default`.
    """
