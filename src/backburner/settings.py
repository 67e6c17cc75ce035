"""One frozen tree of settings; the only reader of the environment."""

import os
import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backburner.domain.address import PORTS, Reach
from backburner.domain.errors import ConfigurationError
from backburner.environment import (
    ServiceUrl,
    alias,
    entry_points_of,
    prefix_of,
    read_model,
    refuse_unknown,
    variables,
)
from backburner.environment import variable as variable_of

PREFIX = "BACKBURNER_"
SHORTEST_PEPPER = 32
S = TypeVar("S", bound=BaseSettings)
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

    apps: Annotated[tuple[str, ...], NoDecode] = ()
    """
    The applications to run, separated by commas: names of installed ones such as
    `tasks,ai`, or `module:app`. Default: none, the platform alone.
    """
    store: str = "sqlite:///backburner.db"
    """Where the jobs are: `sqlite:///file`, or four slashes for an absolute path."""
    transport: str = Field(
        "database",
        validation_alias=AliasChoices(
            "BACKBURNER_TRANSPORT", "RABBITMQ_URL", "REDIS_URL"
        ),
    )
    """What tells workers of work: `database`, or a broker's URL (amqp, redis, sqs)."""
    url: str = "http://127.0.0.1:8765"
    """Which server the command line talks to."""
    api_key: SecretStr = SecretStr("")
    """The key that the command line and the client show to the server."""
    public_url: ServiceUrl = ""
    """
    The address at which clients reach this server, put before the signed URLs of
    blobs, such as https://api.example.com; empty: they are paths.
    """
    host: str = "127.0.0.1"
    """The address to serve on. Other than loopback needs API keys."""
    port: int = Field(8765, ge=0, le=65_535)
    """The port to serve on; 0 takes a free one."""
    metrics_host: str = "127.0.0.1"
    """
    The address at which a worker serves `/metrics`, `/livez` and `/readyz`, without
    keys. Default: this machine only; for example `0.0.0.0` in a container.
    """
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    """The port of these; 0 takes a free one. Default: a worker serves none of them."""
    key_pepper: SecretStr = SecretStr("")
    """Mixed into what is kept of API keys; 32 characters or more, and kept secret."""
    blobs: str = ""
    """
    Where large contents are: `file:///folder`, `s3://bucket/prefix`, `gs://…` or
    `az://…`; empty: beside the SQLite file.
    """
    blob_limit: int = Field(1024**3, ge=1, le=1024**4)
    """The most bytes of one blob of an application. Default: 1 GiB."""
    link_secret: SecretStr = SecretStr("")
    """
    Secret that signs URLs, stream tokens and logins, at least 32 characters; the same
    for every server and worker. To rotate it, list several separated by commas: the
    first one signs, all of them verify. Without it a process accepts only its own.
    """
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
    http_limit: int = Field(32 * 1024 * 1024, ge=1024, le=1024 * 1024 * 1024)
    """Largest answer, in bytes, that a handler may ask of `ctx.http`."""
    http_seconds: Seconds = 30.0
    """Longest time, in seconds, that a request by `ctx.http` may take in all."""
    body_limit: int = Field(11 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    """The largest request body, in bytes."""
    connections: int = Field(2_000, ge=1, le=1_000_000)
    """Connections open at once per server process; more are answered with 503."""
    header_limit: int = Field(32 * 1024, ge=1024, le=1024 * 1024)
    """Bytes of a request's line and headers together; more are answered with 431."""
    header_count: int = Field(100, ge=10, le=10_000)
    """How many headers a request may have; more are answered with 431."""
    header_seconds: Seconds = 10.0
    """Seconds in which a request's headers must arrive, else 408."""
    body_seconds: Seconds = 30.0
    """Seconds in which a body must arrive, and 1 more for each 32 KiB, else 408."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Origins of pages that may call this server from a browser, separated by commas, such
    as `https://app.example.com`. Exact, without a wildcard. Default: only its own.
    """
    cookie_secure: bool = True
    """Whether browsers send the session cookie by https only; off to test by http."""
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
    blocked_seconds: Seconds = 180.0
    """How long the event loop may be blocked before the worker's lease runs out."""
    transaction_seconds: float = Field(5.0, gt=0, le=60)
    """Longest time, in seconds, that a body of `transact` may take."""
    grace_seconds: float = Field(30.0, ge=0, le=3600)
    """How long a stopping worker lets its handlers finish."""
    crash_limit: int = Field(3, ge=1, le=1000)
    """How often a job's worker may be lost before the job has failed."""
    throttle_limit_hours: float = Field(24.0, gt=0, le=720)
    """How long a job may be told to wait in all before it has failed."""
    lane_patience_seconds: float = Field(1.0, ge=0, le=60)
    """How long a handler may wait for a provider's lane before its job is put back."""
    lane_paid_patience_seconds: float = Field(600.0, ge=0, le=86_400)
    """Longest wait for a lane, in seconds, of a handler that has paid for a call."""
    keep_succeeded_days: float = Field(7.0, ge=0, le=3650)
    """How long a succeeded job is kept."""
    keep_failed_days: float = Field(14.0, ge=0, le=3650)
    """How long a dead letter is kept."""
    keep_cancelled_days: float = Field(7.0, ge=0, le=3650)
    """How long a cancelled job is kept."""
    keep_usage_days: float = Field(400.0, ge=0, le=3650)
    """How long is kept what jobs used of models; it outlives them."""
    keep_event_days: float = Field(7.0, ge=0, le=3650)
    """How many days events that applications publish under a topic are kept."""
    prices: str = ""
    """Prices of models, before those that are installed: a JSON file, or JSON."""
    ai: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Model providers in order of preference, separated by commas, such as `openai`.
    `mock` invents answers without a model. Default: none (with `--dev`: `mock`).
    """
    ai_text: Annotated[tuple[str, ...], NoDecode] = Field(
        (), validation_alias=AliasChoices("BACKBURNER_AI_TEXT", "AI_TEXT_PROVIDER")
    )
    """
    Providers for text in place of `BACKBURNER_AI`, in order of preference: names, or
    `name:model` for a certain model, such as `deepseek,openai:gpt-5-mini`.
    """
    ai_embedding: Annotated[tuple[str, ...], NoDecode] = ()
    """The same for vectors of texts, such as `openai`; only the first is asked."""
    ai_audio: Annotated[tuple[str, ...], NoDecode] = Field(
        (), validation_alias=AliasChoices("BACKBURNER_AI_AUDIO", "AI_AUDIO_PROVIDER")
    )
    """The same for recordings, such as `gemini` or `groq`."""
    ai_vision: Annotated[tuple[str, ...], NoDecode] = ()
    """The same for pictures, such as `anthropic`."""
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
    openai_base_url: ServiceUrl = Field("", validation_alias="OPENAI_BASE_URL")
    """The address of a server that speaks as OpenAI does; empty: OpenAI's own."""

    @field_validator(
        "ai",
        "ai_audio",
        "ai_embedding",
        "ai_text",
        "ai_vision",
        "apps",
        "cors_origins",
        "queues",
        "webhook_allow",
        "webhook_ports",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("metrics_port", mode="before")
    @classmethod
    def _port(cls, value: Any) -> Any:
        return None if value == "" else value

    @field_validator("transport")
    @classmethod
    def _named(cls, value: str) -> str:
        return value or "database"

    @field_validator("link_secret")
    @classmethod
    def _all_long(cls, value: SecretStr) -> SecretStr:
        if any(len(secret) < SHORTEST_PEPPER for secret in _secrets(value)):
            raise ValueError(f"must have {SHORTEST_PEPPER} characters or more each")
        return value

    @field_validator("cors_origins")
    @classmethod
    def _exact(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not _is_origin(origin):
                raise ValueError(
                    f"{origin!r} is no origin: write scheme://host[:port] in small "
                    "letters, without a path; a wildcard is not possible"
                )
        return value

    @field_validator("webhook_allow")
    @classmethod
    def _readable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        Reach.read(value)
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
        """Where webhooks may go, by these settings alone."""
        return self.reach_with(())

    def reach_with(self, places: Iterable[str]) -> Reach:
        """Return where webhooks may go if these URLs or hosts are allowed as well."""
        hosts = tuple(urlsplit(place).netloc or place for place in places if place)
        return Reach.read(
            (*self.webhook_allow, *(host.rpartition("@")[2] for host in hosts)),
            ports=self.webhook_ports,
            is_plain_allowed=self.webhook_http,
        )

    @property
    def lease(self) -> timedelta:
        """The lease as a span of time."""
        return timedelta(seconds=self.lease_seconds)


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    shown = f"[{host}]" if ":" in host else host
    written = f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")
    is_default = (parts.scheme, port) in {("http", 80), ("https", 443)}
    is_named = bool(host) and "*" not in host and host.isascii() and not is_default
    return parts.scheme in {"http", "https"} and is_named and text == written


def _secrets(value: SecretStr) -> tuple[str, ...]:
    listed = value.get_secret_value().split(",")
    return tuple(secret.strip() for secret in listed if secret.strip())


def read(**overrides: Any) -> Settings:
    """Read the environment; what is given here comes before it."""
    refuse_unknown(PREFIX, variables(Settings), _reserved)
    given = {key: value for key, value in overrides.items() if value is not None}
    return _checked(read_model(Settings, given))


def read_settings(model: type[S], **overrides: Any) -> S:
    """
    Read an application's settings from the environment.

    Raises `ConfigurationError` in one line that names each variable with a wrong value;
    the values of secrets are never part of it.
    """
    given: Any = model  # what an application declares may be anything
    if not (isinstance(given, type) and issubclass(given, BaseSettings)):
        raise ConfigurationError(
            f"settings must be a subclass of pydantic_settings.BaseSettings, not "
            f"{given!r}"
        )
    prefix = prefix_of(model)
    _check_names(model, prefix)
    if prefix.startswith(PREFIX):
        refuse_unknown(prefix, variables(model), lambda: NOT_SETTINGS)
    return read_model(model, overrides)


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


def _reserved() -> tuple[str, ...]:
    """Return what belongs to others, as `BACKBURNER_NAME_` to an installed `NAME`."""
    names = entry_points_of("backburner.apps").names
    prefixes = (f"{PREFIX}{re.sub('[^A-Z0-9]', '_', app.upper())}_" for app in names)
    return (*NOT_SETTINGS, *(prefix for prefix in prefixes if not _is_ours(prefix)))


def _is_ours(prefix: str) -> bool:
    return any(known.startswith(prefix) for known in variables(Settings))


def _check_names(model: type[BaseSettings], prefix: str) -> None:
    """Refuse a model whose variables would be those of the platform, or of anybody."""
    if prefix.startswith(PREFIX) and _is_ours(prefix):
        raise ConfigurationError(
            f"{model.__name__}: the prefix {prefix!r} is the platform's own; choose "
            "another `env_prefix`"
        )
    unnamed = [
        name for name in model.model_fields if not prefix and not alias(model, name)
    ]
    if unnamed:
        raise ConfigurationError(
            f"{model.__name__}: the field {unnamed[0]!r} has neither an `env_prefix` "
            "nor a `validation_alias`: say by which variable it is set"
        )


def variable(name: str) -> str:
    """Return by which variable of the environment a setting of ours is set."""
    return variable_of(name, Settings)


def fault() -> str | None:
    """Return the failpoint at which a test wants this process to end."""
    return os.environ.get("BACKBURNER_FAULT")
