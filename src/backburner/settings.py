"""One frozen tree of settings; the only reader of the environment."""

import difflib
import os
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AliasChoices,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backburner.domain.address import PORTS, Reach
from backburner.domain.errors import ConfigurationError

PREFIX = "BACKBURNER_"
SHORTEST_PEPPER = 32
NOT_SETTINGS = ("BACKBURNER_TEST_", "BACKBURNER_FAULT")

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Settings(BaseSettings):
    """
    How this process runs.

    Each is set by `BACKBURNER_` and its name in capitals, or by the name that others
    know it by, as `OPENAI_API_KEY`.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", populate_by_name=True
    )

    store: str = "sqlite:///backburner.db"
    """Where the jobs are: `sqlite:///file`, or four slashes for an absolute path."""
    transport: str = Field(
        "database",
        validation_alias=AliasChoices("BACKBURNER_TRANSPORT", "RABBITMQ_URL"),
    )
    """What tells workers of work: `database`, or a broker's URL (amqp, redis, sqs)."""
    url: str = "http://127.0.0.1:8765"
    """Which server the command line talks to."""
    api_key: SecretStr = SecretStr("")
    """The key that the command line and the client show to the server."""
    host: str = "127.0.0.1"
    """The address to serve on. Other than loopback needs API keys."""
    port: int = Field(8765, ge=0, le=65_535)
    """The port to serve on; 0 takes a free one."""
    key_pepper: SecretStr = SecretStr("")
    """Mixed into what is kept of API keys; 32 characters or more, and kept secret."""
    blobs: str = ""
    """Where large contents are: `file:///folder`; empty: beside the SQLite file."""
    link_secret: SecretStr = SecretStr("")
    """Signs links, 32 characters or more; by comma, the first signs, all hold."""
    webhook_secret: SecretStr = SecretStr("")
    """What webhooks' secrets follow from, 32 characters or more; another, others."""
    webhook_allow: Annotated[tuple[str, ...], NoDecode] = ()
    """Who may be called though not public, by comma: host, host:port or network."""
    webhook_http: bool = False
    """Whether webhooks may go out by plain http."""
    webhook_ports: Annotated[tuple[int, ...], NoDecode] = PORTS
    """The ports that webhooks may go to, by comma."""
    webhook_connect_seconds: Seconds = 3.0
    """How long a webhook's receiver may take to be connected to."""
    webhook_seconds: Seconds = 15.0
    """How long a webhook may take in all, its receiver's answer included."""
    body_limit: int = Field(11 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    """The largest request body, in bytes."""
    key_rate: float = Field(1000.0, ge=0, le=1_000_000)
    """How many requests a second one API key may make of one process; 0: any number."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least of the log lines that are written."""
    log_format: Literal["auto", "json", "pretty"] = "auto"
    """JSON lines, or for a reader; `auto` asks whether it is a terminal."""
    slots: int = Field(100, ge=1, le=10_000)
    """How many jobs one worker runs at once."""
    queues: Annotated[tuple[str, ...], NoDecode] = ()
    """The queues a worker takes from, by comma; empty: those of its capabilities."""
    poll_seconds: Seconds = 1.0
    """How often is looked for work that no wake-up told of."""
    beat_seconds: Seconds = 2.0
    """How often a worker renews its lease."""
    lease_seconds: Seconds = 10.0
    """How long a silent worker keeps its jobs."""
    grace_seconds: float = Field(30.0, ge=0, le=3600)
    """How long a stopping worker lets its handlers finish."""
    crash_limit: int = Field(3, ge=1, le=1000)
    """How often a job's worker may be lost before the job has failed."""
    throttle_limit_hours: float = Field(24.0, gt=0, le=720)
    """How long a job may be told to wait in all before it has failed."""
    lane_patience_seconds: float = Field(1.0, ge=0, le=60)
    """How long a handler may wait for a provider's lane before its job is put back."""
    keep_succeeded_days: float = Field(7.0, ge=0, le=3650)
    """How long a succeeded job is kept."""
    keep_failed_days: float = Field(14.0, ge=0, le=3650)
    """How long a dead letter is kept."""
    keep_cancelled_days: float = Field(7.0, ge=0, le=3650)
    """How long a cancelled job is kept."""
    keep_usage_days: float = Field(400.0, ge=0, le=3650)
    """How long is kept what jobs used of models; it outlives them."""
    prices: str = ""
    """Prices of models, before those that are installed: a JSON file, or JSON."""
    ai: Annotated[tuple[str, ...], NoDecode] = ("mock",)
    """Who is asked for answers, by comma, the next if one has none: mock, openai."""
    ai_model: str = "gpt-5-mini"
    """The model that answers; with another base URL, one of that server's."""
    ai_embedding_model: str = "text-embedding-3-small"
    """The model that makes vectors of texts."""
    ai_transcription_model: str = "gpt-4o-mini-transcribe"
    """The model that writes recordings down."""
    ai_vision_model: str = ""
    """The model that looks at pictures; empty: the one that answers."""
    ai_seconds: Seconds = 60.0
    """How long a model's answer may take in all, unless the question says."""
    ai_requests: int = Field(0, ge=0, le=1_000_000)
    """Calls a minute to each model, by all workers together; 0: it is learnt."""
    ai_at_once: int = Field(0, ge=0, le=1_000_000)
    """Calls at once to each model, by all workers together; 0: it is learnt."""
    ai_spacing_ms: int = Field(0, ge=0, le=3_600_000)
    """The least time between two calls to a model, by all workers together."""
    openai_api_key: SecretStr = Field(SecretStr(""), validation_alias="OPENAI_API_KEY")
    """The key of the provider `openai`, which does not start without."""
    openai_base_url: str = Field("", validation_alias="OPENAI_BASE_URL")
    """The address of a server that speaks as OpenAI does; empty: OpenAI's own."""

    tasks_service_base_url: str = Field("", validation_alias="TASKS_SERVICE_BASE_URL")
    """Where the Tasks service is called back; empty: where this process serves."""
    ai_service_base_url: str = Field("", validation_alias="AI_SERVICE_BASE_URL")
    """Where the AI service is; empty: where this process serves."""
    tasks_tokens: int = Field(0, ge=0, le=10**12)
    """How many tokens a user may use in a window; 0: no budget of this service's."""
    tasks_window_seconds: int = Field(86_400, ge=1, le=31_536_000)
    """How long that window is."""
    tasks_hold_seconds: Seconds = 900.0
    """How long tokens are held for a request that is not called back."""
    tasks_keep_days: float = Field(90.0, gt=0, le=3650)
    """How long a request for a task is known; longer than its dead letter is kept."""
    tasks_timezone: str = "UTC"
    """What "tomorrow" is told by, such as Europe/Berlin."""

    @field_validator("ai", "queues", "webhook_allow", "webhook_ports", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("link_secret")
    @classmethod
    def _all_long(cls, value: SecretStr) -> SecretStr:
        if any(len(secret) < SHORTEST_PEPPER for secret in _secrets(value)):
            raise ValueError(f"must have {SHORTEST_PEPPER} characters or more each")
        return value

    @field_validator("webhook_allow")
    @classmethod
    def _readable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        Reach.read(value)
        return value

    @field_validator("ai")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("must name a provider; mock needs no key")
        return value

    @field_validator("openai_base_url", "tasks_service_base_url", "ai_service_base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        if value and not _has_place(value):
            raise ValueError("must be a host, if you like with port and path")
        return value.rstrip("/")

    @field_validator("tasks_timezone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, OSError, ValueError):
            raise ValueError(f"no time zone is called {value!r}") from None
        return value

    @field_validator("key_pepper", "webhook_secret")
    @classmethod
    def _long(cls, value: SecretStr) -> SecretStr:
        if 0 < len(value.get_secret_value()) < SHORTEST_PEPPER:
            raise ValueError(f"must have {SHORTEST_PEPPER} characters or more")
        return value

    @property
    def link_secrets(self) -> tuple[str, ...]:
        """The secrets of links, the one that signs first; empty if there is none."""
        return _secrets(self.link_secret)

    @property
    def reach(self) -> Reach:
        """Where webhooks may go; the Tasks service is the operator's own."""
        own = urlsplit(self.tasks_service_base_url).netloc.rpartition("@")[2]
        return Reach.read(
            (*self.webhook_allow, own) if own else self.webhook_allow,
            ports=self.webhook_ports,
            is_plain_allowed=self.webhook_http,
        )

    @property
    def lease(self) -> timedelta:
        """The lease as a span of time."""
        return timedelta(seconds=self.lease_seconds)


def _has_place(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_odd = parts.port == 0 or bool(parts.query or parts.fragment)
    except ValueError:
        return False
    return bool(parts.hostname) and url.isprintable() and " " not in url and not is_odd


def _secrets(value: SecretStr) -> tuple[str, ...]:
    listed = value.get_secret_value().split(",")
    return tuple(secret.strip() for secret in listed if secret.strip())


def read(**overrides: Any) -> Settings:
    """Read the environment; what is given here comes before it."""
    _refuse_unknown()
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return _checked(Settings(**given))
    except ValidationError as error:
        raise ConfigurationError("; ".join(map(_told, error.errors()))) from None


def _checked(settings: Settings) -> Settings:
    if settings.lease_seconds < 2 * settings.beat_seconds:
        raise ConfigurationError(
            "BACKBURNER_LEASE_SECONDS must be at least twice BACKBURNER_BEAT_SECONDS"
        )
    if settings.webhook_seconds <= settings.webhook_connect_seconds:
        raise ConfigurationError(
            "BACKBURNER_WEBHOOK_SECONDS must be more than "
            "BACKBURNER_WEBHOOK_CONNECT_SECONDS"
        )
    return settings


def _refuse_unknown() -> None:
    known = {variable(name) for name in Settings.model_fields}
    for name in sorted(os.environ):
        if not name.startswith(PREFIX) or name.startswith(NOT_SETTINGS):
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigurationError(f"{name} is not a setting{hint}")


def _told(error: Any) -> str:
    name = str(error["loc"][0])  # what follows is a place in a list
    told = name if name in _BORROWED else variable(name)
    return f"{told}: {error['msg']}"


def variable(name: str) -> str:
    """Return by which variable of the environment a setting is set."""
    field = Settings.model_fields.get(name)
    alias = None if field is None else field.validation_alias
    return alias if isinstance(alias, str) else PREFIX + name.upper()


_BORROWED = {variable(name) for name in Settings.model_fields}
"""Names of others' making are told as they are."""


def fault() -> str | None:
    """Return the failpoint at which a test wants this process to end."""
    return os.environ.get("BACKBURNER_FAULT")
