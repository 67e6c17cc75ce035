"""The settings of the inbox."""

import re
from typing import Final, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner import ServiceUrl, TimeZone

ParseMode = Literal["HTML", "Markdown"]
TELEGRAM: Final = "https://api.telegram.org"
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9:_-]{1,256}")


class InboxSettings(BaseSettings):
    """The bot, its models, and how messages are parsed and stored."""

    model_config = SettingsConfigDict(
        env_prefix="BACKBURNER_INBOX_", frozen=True, populate_by_name=True
    )

    telegram_bot_token: SecretStr = Field(
        SecretStr(""), validation_alias="TELEGRAM_BOT_TOKEN"
    )
    """
    Token of the Telegram bot, from @BotFather. Default: none; without it (allowed only
    with `--dev` and in `demo`) replies are not sent but shown at `/apps/inbox/`.
    """
    telegram_webhook_secret: SecretStr = Field(
        SecretStr(""), validation_alias="TELEGRAM_WEBHOOK_SECRET"
    )
    """
    Secret that Telegram sends with every update: 1 to 256 letters, digits, `_` and `-`.
    Updates with a different secret are refused. Default: none; required without
    `--dev`.
    """
    telegram_api_base_url: ServiceUrl = Field(
        TELEGRAM, validation_alias="TELEGRAM_API_BASE_URL"
    )
    """
    Base URL of the Telegram Bot API. If it is not public, such as your own Bot API
    server, also list it in `BACKBURNER_WEBHOOK_ALLOW`. Default:
    `https://api.telegram.org`.
    """
    ai_timeout_ms: int = Field(
        30_000, ge=1, le=120_000, validation_alias="AI_TIMEOUT_MS"
    )
    """
    Maximum total time of a model call of the inbox, in milliseconds, at most 120000.
    Default: 30000.
    """
    tenant: str = Field("default", min_length=1, max_length=200)
    """
    Tenant that messages and tasks of the inbox belong to; the user is `telegram:{id}`.
    Default: `default`.
    """
    timezone: TimeZone = "UTC"
    """
    Time zone in which words such as "tomorrow" are interpreted. Default: UTC. Example:
    `Europe/Berlin`.
    """
    parse_mode: ParseMode = "HTML"
    """Format of the bot's replies: `HTML` or `Markdown`. Default: `HTML`."""
    deadline_seconds: float = Field(3600.0, gt=0, le=604_800)
    """
    How long a message may wait until it is parsed, in seconds. After that it is stored
    unchanged, as a task with the status `PARSE_FAILED`. Default: 3600.
    """
    keep_days: float = Field(90.0, gt=0, le=3650)
    """How long a message is remembered, to recognise repeats, in days. Default: 90."""

    @field_validator("telegram_webhook_secret")
    @classmethod
    def _secret(cls, value: SecretStr) -> SecretStr:
        return _matched(value, _SECRET, "letters, digits, _ and -, at most 256")

    @field_validator("telegram_bot_token")
    @classmethod
    def _token(cls, value: SecretStr) -> SecretStr:
        return _matched(value, _TOKEN, "a token as @BotFather gives it")

    @property
    def token(self) -> str:
        """The bot's token; empty: there is no bot."""
        return self.telegram_bot_token.get_secret_value()

    @property
    def secret(self) -> str:
        """The secret of updates; empty: none is asked for."""
        return self.telegram_webhook_secret.get_secret_value()

    @property
    def ai_seconds(self) -> float:
        """How long a model's answer may take, in seconds."""
        return self.ai_timeout_ms / 1000


def _matched(value: SecretStr, pattern: re.Pattern[str], must_be: str) -> SecretStr:
    text = value.get_secret_value()
    if text and not pattern.fullmatch(text):
        raise ValueError(f"must be {must_be}")
    return value
