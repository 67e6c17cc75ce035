"""
Services with OpenAI's API: their addresses, abilities and differences.

A preset is selected by name. Its key is read from `NAME_API_KEY`, and `NAME_BASE_URL`
overrides its address.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, get_args

from pydantic import Field, SecretStr, create_model
from pydantic_settings import BaseSettings

from backburner.domain.ai import Purpose
from backburner.environment import ServiceUrl, read_model
from backburner.ports.ai import Models

PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)
SETTINGS: Final[Mapping[Purpose, str]] = {
    "chat": "ai_text",
    "embedding": "ai_embedding",
    "transcription": "ai_audio",
    "vision": "ai_vision",
}
"""The setting that lists the providers for each purpose."""


@dataclass(frozen=True, slots=True)
class Preset:
    """The description of one service."""

    name: str
    """Also its name in metrics, usage and lanes, even if its address is overridden."""
    base_url: str
    purposes: frozenset[Purpose]
    models: Models
    """Its default models; an empty one must be named in the settings."""
    needs_key: bool = True
    limit: str = "max_tokens"
    """The name of the field that limits an answer's tokens."""
    takes_json_mode: bool = True
    """Whether it accepts `response_format`."""
    counts_streams: bool = True
    """Whether it accepts `stream_options`, so that a stream ends with its usage."""
    hears_by_chat: bool = False
    """Whether recordings are transcribed by a chat, as there is no other endpoint."""

    @property
    def key_variable(self) -> str:
        """The environment variable with its key."""
        return f"{self.name.upper()}_API_KEY"

    @property
    def url_variable(self) -> str:
        """The environment variable that overrides its address."""
        return f"{self.name.upper()}_BASE_URL"


def _all_but(*missing: Purpose) -> frozenset[Purpose]:
    return frozenset(PURPOSES).difference(missing)


OPENAI: Final = Preset(
    "openai",
    "https://api.openai.com/v1",
    _all_but(),
    Models(
        "gpt-5-mini", "text-embedding-3-small", "gpt-4o-mini-transcribe", "gpt-5-mini"
    ),
    # Its newer models reject the old name.
    limit="max_completion_tokens",
)
PRESETS: Final[Mapping[str, Preset]] = {
    preset.name: preset
    for preset in (
        OPENAI,
        Preset(
            "deepseek",
            "https://api.deepseek.com/v1",
            frozenset({"chat"}),
            Models("deepseek-chat", "", "", ""),
            takes_json_mode=False,
        ),
        Preset(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            _all_but(),
            Models(
                "gemini-2.5-flash",
                "gemini-embedding-001",
                "gemini-2.5-flash",
                "gemini-2.5-flash",
            ),
            hears_by_chat=True,
        ),
        Preset(
            "anthropic",
            "https://api.anthropic.com/v1",
            frozenset({"chat", "vision"}),
            Models("claude-haiku-4-5", "", "", "claude-haiku-4-5"),
            takes_json_mode=False,
        ),
        Preset(
            "groq",
            "https://api.groq.com/openai/v1",
            _all_but("embedding"),
            Models(
                "llama-3.3-70b-versatile",
                "",
                "whisper-large-v3-turbo",
                "meta-llama/llama-4-scout-17b-16e-instruct",
            ),
        ),
        Preset(
            "mistral",
            "https://api.mistral.ai/v1",
            _all_but(),
            Models(
                "mistral-small-latest",
                "mistral-embed",
                "voxtral-mini-latest",
                "mistral-small-latest",
            ),
            counts_streams=False,
        ),
        Preset(
            "ollama",
            "http://127.0.0.1:11434/v1",
            _all_but("transcription"),
            Models("", "", "", ""),
            needs_key=False,
        ),
        Preset(
            "vllm",
            "http://127.0.0.1:8000/v1",
            _all_but(),
            Models("", "", "", ""),
            needs_key=False,
        ),
    )
}


EMBED_ONLY: Final = frozenset({"minilm", "minilm-light"})
"""Local embedding models, provided by an application: see docs/search.md."""


class Choice(NamedTuple):
    """A provider as named in a setting: `name` or `name:model`."""

    name: str
    model: str = ""


def choices(listed: Iterable[str]) -> tuple[Choice, ...]:
    """Parse a list of providers; a model name may contain colons."""
    parts = (entry.partition(":") for entry in listed)
    return tuple(Choice(name.strip(), model.strip()) for name, _, model in parts)


def chain(
    special: Sequence[str], default: Sequence[str], purpose: Purpose
) -> tuple[Choice, ...]:
    """
    Return the providers for a purpose, or the default ones if it has none of its own.

    Default providers that do not serve the purpose are left out.
    """
    if special:
        return choices(special)
    return tuple(each for each in choices(default) if serves(each.name, purpose))


def serves(name: str, purpose: Purpose) -> bool:
    """Return whether a provider serves a purpose; without a preset, assume so."""
    return purpose in purposes_of(name)


def purposes_of(name: str) -> frozenset[Purpose]:
    """Return the purposes of a provider; without a preset, assume all of them."""
    if name in EMBED_ONLY:
        return frozenset({"embedding"})
    preset = PRESETS.get(name)
    return _all_but() if preset is None else preset.purposes


class Credentials(NamedTuple):
    """The settings with which a service is reached."""

    key: str = ""
    base_url: str = ""


def credentials(preset: Preset, of_openai: Credentials) -> Credentials:
    """Return the settings of a service; OpenAI's are part of the platform's."""
    if preset is OPENAI:
        return of_openai
    fields: Any = {
        "key": (SecretStr, Field(SecretStr(""), alias=preset.key_variable)),
        "base_url": (ServiceUrl, Field("", alias=preset.url_variable)),
    }
    model = create_model(f"{preset.name}Settings", __base__=BaseSettings, **fields)
    settings: Any = read_model(model, {})
    return Credentials(settings.key.get_secret_value(), settings.base_url)


def is_usable(name: str, of_openai: Credentials) -> bool:
    """Return whether a provider has the key that it needs."""
    preset = PRESETS.get(name)
    needs_one = preset is not None and preset.needs_key
    return not needs_one or bool(credentials(PRESETS[name], of_openai).key)
