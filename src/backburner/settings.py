"""The platform's settings, read from environment variables and immutable."""

import os
import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backburner.domain.errors import ConfigurationError
from backburner.domain.webhooks.address import PORTS, Reach
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
    The settings of this process.

    Each field is set by the environment variable `BACKBURNER_` plus its name in
    capitals, or by its usual name, such as `OPENAI_API_KEY`.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", populate_by_name=True
    )

    apps: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Applications to run, separated by commas: names of installed applications or
    `module:app`. Default: none, only the platform. Example: `tasks,ai`.
    """
    store: str = "sqlite:///backburner.db"
    """
    URL of the database: `sqlite:///file` (four slashes for an absolute path) or
    `postgresql://user:password@host/name`. Default: `sqlite:///backburner.db`.
    """
    transport: str = Field(
        "database",
        validation_alias=AliasChoices(
            "BACKBURNER_TRANSPORT", "RABBITMQ_URL", "REDIS_URL"
        ),
    )
    """
    How workers learn about new jobs: `database`, or the URL of a message broker
    (`amqp://…`, `redis://…`, `sqs://…`). `RABBITMQ_URL` and `REDIS_URL` are other names
    for it. Default: `database`.
    """
    url: str = "http://127.0.0.1:8765"
    """
    URL of the server that the command line calls. Default: `http://127.0.0.1:8765`.
    """
    api_key: SecretStr = SecretStr("")
    """
    API key that the command line and the client send to the server. Default: none.
    """
    public_url: ServiceUrl = ""
    """
    Public URL of this server, used as the start of signed blob URLs, for example
    `https://api.example.com`. Default: empty, signed URLs are paths without a host.
    """
    host: str = "127.0.0.1"
    """
    Address that the server listens on. Any address other than loopback requires API
    keys. Default: `127.0.0.1`.
    """
    port: int = Field(8765, ge=0, le=65_535)
    """Port that the server listens on; 0 selects a free port. Default: 8765."""
    metrics_host: str = "127.0.0.1"
    """
    Address on which a worker serves `/metrics`, `/livez` and `/readyz`, without API
    keys. Default: `127.0.0.1`. Example: `0.0.0.0` in a container.
    """
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    """
    Port on which a worker serves `/metrics`, `/livez` and `/readyz`; 0 selects a free
    port. Default: empty, they are not served.
    """
    key_pepper: SecretStr = SecretStr("")
    """
    Secret that is mixed into the stored hashes of API keys, at least 32 characters.
    Changing it invalidates every API key. Default: none; required without `--dev`.
    """
    blobs: str = ""
    """
    Where large inputs, outputs and files are stored: `file:///folder`,
    `s3://bucket/prefix`, `gs://…` or `az://…`. Default: a folder next to the SQLite
    file; with PostgreSQL, `.backburner-blobs` in the current folder.
    """
    blob_limit: int = Field(1024**3, ge=1, le=1024**4)
    """
    Maximum size of one blob of an application, in bytes. Default: 1073741824 (1 GiB).
    """
    link_secret: SecretStr = SecretStr("")
    """
    Secret that signs URLs, stream tokens and browser sessions, at least 32 characters;
    use the same value for every server and worker. To rotate it, list several secrets
    separated by commas: the first one signs, all of them verify. Default: a random
    secret per process, so that each process accepts only its own signatures.
    """
    webhook_secret: SecretStr = SecretStr("")
    """
    Master key from which each endpoint's webhook secret is derived, at least 32
    characters. Changing it changes every endpoint's secret. Default: none; without it
    webhooks are not sent.
    """
    webhook_allow: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Non-public receivers that webhooks may be sent to, separated by commas: a host,
    `host:port` or a network. Default: none. Example: `hooks.internal:8080,10.1.0.0/16`.
    """
    webhook_http: bool = False
    """Whether webhooks may be sent over unencrypted `http`. Default: False."""
    webhook_ports: Annotated[tuple[int, ...], NoDecode] = PORTS
    """
    Ports that webhooks may be sent to, separated by commas. Default: `80,443,8443`.
    """
    webhook_connect_seconds: Seconds = 3.0
    """Maximum time to connect to a webhook receiver, in seconds. Default: 3."""
    webhook_seconds: Seconds = 15.0
    """
    Maximum total time of one webhook request, including the receiver's answer, in
    seconds. Default: 15.
    """
    http_limit: int = Field(32 * 1024 * 1024, ge=1024, le=1024 * 1024 * 1024)
    """
    Maximum size of a response that a handler may read with `ctx.http`, in bytes.
    Default: 33554432 (32 MiB).
    """
    http_seconds: Seconds = 30.0
    """Maximum total time of one request with `ctx.http`, in seconds. Default: 30."""
    body_limit: int = Field(11 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    """
    Maximum size of a request body, in bytes; larger ones are answered with 413.
    Default: 11534336 (11 MiB).
    """
    connections: int = Field(2_000, ge=1, le=1_000_000)
    """
    Maximum number of open connections per server process; further ones are answered
    with 503. Default: 2000.
    """
    header_limit: int = Field(32 * 1024, ge=1024, le=1024 * 1024)
    """
    Maximum size of the request line and headers together, in bytes; larger ones are
    answered with 431. Default: 32768 (32 KiB).
    """
    header_count: int = Field(100, ge=10, le=10_000)
    """
    Maximum number of headers in a request; more are answered with 431. Default: 100.
    """
    header_seconds: Seconds = 10.0
    """
    Time in which the headers of a request must arrive, in seconds; otherwise the answer
    is 408. Default: 10.
    """
    body_seconds: Seconds = 30.0
    """
    Time in which a request body must arrive, in seconds, plus 1 second for each 32 KiB;
    otherwise the answer is 408. Default: 30.
    """
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Origins of web pages that may call this server from a browser, separated by commas.
    They must match exactly; wildcards are not supported. Default: only the server's own
    origin. Example: `https://app.example.com`.
    """
    cookie_secure: bool = True
    """
    Whether browsers send the session cookie over https only. Set it to False only to
    test over http. Default: True.
    """
    key_rate: float = Field(1000.0, ge=0, le=1_000_000)
    """
    Rate limit of one API key in each server process, in requests per second; 0 means no
    limit. Default: 1000.
    """
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum log level: `debug`, `info`, `warning` or `error`. Default: `info`."""
    log_format: Literal["auto", "json", "pretty"] = "auto"
    """
    Format of the log: `json`, `pretty` (for people) or `auto` (pretty on a terminal,
    otherwise JSON). Default: `auto`.
    """
    slots: int = Field(100, ge=1, le=10_000)
    """Maximum number of jobs that one worker runs at the same time. Default: 100."""
    queues: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Queues that a worker takes jobs from, separated by commas. At least one of them
    must be used by a capability of the worker or declared with `Queue(…)`; the worker
    logs a warning for each other one. Default: all queues of its capabilities.
    Example: `default,imports`.
    """
    poll_seconds: Seconds = 1.0
    """
    How often a process checks the store for jobs that no notification announced, in
    seconds. Default: 1.
    """
    beat_seconds: Seconds = 2.0
    """How often a worker renews its lease, in seconds. Default: 2."""
    lease_seconds: Seconds = 10.0
    """
    How long a worker keeps its jobs without renewing its lease, in seconds; then other
    workers run them again. At least twice `BACKBURNER_BEAT_SECONDS`. Default: 10.
    """
    blocked_seconds: Seconds = 180.0
    """
    How long a handler may block a worker's event loop before the lease is no longer
    renewed, in seconds. Default: 180.
    """
    transaction_seconds: float = Field(5.0, gt=0, le=60)
    """
    Maximum time of one `transact` body, in seconds; longer ones are rolled back.
    Default: 5.
    """
    grace_seconds: float = Field(30.0, ge=0, le=3600)
    """
    How long a worker that is shutting down waits for running handlers, in seconds.
    Default: 30.
    """
    crash_limit: int = Field(3, ge=1, le=1000)
    """Number of lost workers after which a job fails with `WORKER_LOST`. Default: 3."""
    throttle_limit_hours: float = Field(24.0, gt=0, le=720)
    """
    Maximum total time that a job may wait because of throttling before it fails, in
    hours. A capability with `patience` and webhooks have their own limits. Default: 24.
    """
    lane_patience_seconds: float = Field(1.0, ge=0, le=60)
    """
    How long a handler waits for a provider's rate limit before its job is returned to
    the queue, in seconds. Default: 1.
    """
    lane_paid_patience_seconds: float = Field(600.0, ge=0, le=86_400)
    """
    The same for a handler that has already paid for a model call, in seconds. Default:
    600.
    """
    keep_succeeded_days: float = Field(7.0, ge=0, le=3650)
    """Retention of succeeded jobs, in days. Default: 7."""
    keep_failed_days: float = Field(14.0, ge=0, le=3650)
    """Retention of failed jobs (dead letters), in days. Default: 14."""
    keep_cancelled_days: float = Field(7.0, ge=0, le=3650)
    """Retention of cancelled jobs, in days. Default: 7."""
    keep_usage_days: float = Field(400.0, ge=0, le=3650)
    """
    Retention of usage records, in days; they are kept longer than their jobs. Default:
    400.
    """
    keep_event_days: float = Field(7.0, ge=0, le=3650)
    """
    Retention of events that applications publish under a topic, in days. Default: 7.
    """
    prices: str = ""
    """
    Model prices that override the built-in ones: the path of a JSON file, or JSON text.
    Default: none.
    """
    ai: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Model providers in order of preference, separated by commas. If one is unavailable,
    the next one is tried. `mock` generates answers without a model. Default: none (with
    `--dev`: `mock`). Example: `openai,mock`.
    """
    ai_text: Annotated[tuple[str, ...], NoDecode] = Field(
        (), validation_alias=AliasChoices("BACKBURNER_AI_TEXT", "AI_TEXT_PROVIDER")
    )
    """
    Model providers for text, instead of `BACKBURNER_AI`, in order of preference: `name`
    or `name:model`. `AI_TEXT_PROVIDER` is another name for it. Default: those of
    `BACKBURNER_AI`. Example: `deepseek,openai:gpt-5-mini`.
    """
    ai_embedding: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Model provider for embeddings, as `name` or `name:model`; only the first one is
    used. Default: that of `BACKBURNER_AI`. Example: `openai`.
    """
    ai_audio: Annotated[tuple[str, ...], NoDecode] = Field(
        (), validation_alias=AliasChoices("BACKBURNER_AI_AUDIO", "AI_AUDIO_PROVIDER")
    )
    """
    Model providers for transcription, as `name` or `name:model`. `AI_AUDIO_PROVIDER` is
    another name for it. Default: those of `BACKBURNER_AI`. Example: `gemini,groq`.
    """
    ai_vision: Annotated[tuple[str, ...], NoDecode] = ()
    """
    Model providers for images, as `name` or `name:model`. Default: those of
    `BACKBURNER_AI`. Example: `anthropic`.
    """
    ai_model: str = "gpt-5-mini"
    """
    Model for text. If `OPENAI_BASE_URL` is set, a model of that server. Default:
    `gpt-5-mini`.
    """
    ai_embedding_model: str = "text-embedding-3-small"
    """Model for embeddings. Default: `text-embedding-3-small`."""
    ai_transcription_model: str = "gpt-4o-mini-transcribe"
    """Model for transcription. Default: `gpt-4o-mini-transcribe`."""
    ai_vision_model: str = ""
    """Model for images. Default: the model for text."""
    ai_seconds: Seconds = 60.0
    """
    Maximum total time of a model call, in seconds, unless the call sets its own.
    Default: 60.
    """
    ai_requests: int = Field(0, ge=0, le=1_000_000)
    """
    Maximum calls per minute to each model, for all workers together; 0 means that the
    limit is learnt from the provider's answers. Default: 0.
    """
    ai_at_once: int = Field(0, ge=0, le=1_000_000)
    """
    Maximum concurrent calls to each model, for all workers together; 0 means that the
    limit is learnt. Default: 0.
    """
    ai_spacing_ms: int = Field(0, ge=0, le=3_600_000)
    """
    Minimum time between two calls to a model, for all workers together, in
    milliseconds. Default: 0.
    """
    openai_api_key: SecretStr = Field(SecretStr(""), validation_alias="OPENAI_API_KEY")
    """API key of the provider `openai`, which is required to use it. Default: none."""
    openai_base_url: ServiceUrl = Field("", validation_alias="OPENAI_BASE_URL")
    """
    Base URL of a server with OpenAI's API. Default: OpenAI's own server. Example:
    `http://localhost:11434/v1`.
    """

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
                    f"{origin!r} is not an origin: write scheme://host[:port] in "
                    "lower case, without a path or a wildcard"
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
        """Secrets that verify signed URLs; the first one signs. May be empty."""
        return _secrets(self.link_secret)

    @property
    def reach(self) -> Reach:
        """Where webhooks may be sent according to these settings."""
        return self.reach_with(())

    def reach_with(self, places: Iterable[str]) -> Reach:
        """Return where webhooks may be sent if these URLs or hosts are allowed, too."""
        hosts = tuple(urlsplit(place).netloc or place for place in places if place)
        return Reach.read(
            (*self.webhook_allow, *(host.rpartition("@")[2] for host in hosts)),
            ports=self.webhook_ports,
            is_plain_allowed=self.webhook_http,
        )

    @property
    def lease(self) -> timedelta:
        """The length of a lease."""
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
    """Read the environment; arguments take precedence over it."""
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
    """Return prefixes of other readers, such as `BACKBURNER_NAME_` of an app `NAME`."""
    names = entry_points_of("backburner.apps").names
    prefixes = (f"{PREFIX}{re.sub('[^A-Z0-9]', '_', app.upper())}_" for app in names)
    return (*NOT_SETTINGS, *(prefix for prefix in prefixes if not _is_ours(prefix)))


def _is_ours(prefix: str) -> bool:
    return any(known.startswith(prefix) for known in variables(Settings))


def _check_names(model: type[BaseSettings], prefix: str) -> None:
    """Refuse a model whose variables have no prefix or that of the platform."""
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
    """Return the environment variable of one of the platform's settings."""
    return variable_of(name, Settings)


def fault() -> str | None:
    """Return the failpoint at which this process shall end, for tests."""
    return os.environ.get("BACKBURNER_FAULT")
