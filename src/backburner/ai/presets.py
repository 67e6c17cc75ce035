"""
Services that speak as OpenAI does: where they are, what they can do, how they differ.

A preset is chosen by its name. Its key is read from `NAME_API_KEY`, and `NAME_BASE_URL`
takes the place of its address.
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
"""By purpose, the setting that names its providers."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One service."""

    name: str
    """Also its name in metrics, usage and lanes, whatever address is asked."""
    base_url: str
    purposes: frozenset[Purpose]
    models: Models
    """Its models unless others are set; empty: one must be named."""
    needs_key: bool = True
    limit: str = "max_tokens"
    """What it calls the limit of an answer's tokens."""
    takes_json_mode: bool = True
    """Whether it accepts `response_format`."""
    counts_streams: bool = True
    """Whether it accepts `stream_options`, by which a stream ends with its usage."""
    hears_by_chat: bool = False
    """Whether recordings are part of a chat: it has no transcriptions."""

    @property
    def key_variable(self) -> str:
        """The variable of the environment that holds its key."""
        return f"{self.name.upper()}_API_KEY"

    @property
    def url_variable(self) -> str:
        """The variable of the environment that names another address."""
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
    # Its newer models refuse the old name.
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
"""Offline models, which an application brings: see docs/search.md."""


class Choice(NamedTuple):
    """A provider as a setting names it: `name` or `name:model`."""

    name: str
    model: str = ""


def choices(listed: Iterable[str]) -> tuple[Choice, ...]:
    """Read the names of a chain; the model of one may have colons itself."""
    parts = (entry.partition(":") for entry in listed)
    return tuple(Choice(name.strip(), model.strip()) for name, _, model in parts)


def chain(
    special: Sequence[str], default: Sequence[str], purpose: Purpose
) -> tuple[Choice, ...]:
    """
    Return whom to ask for a purpose: those named for it, else those of all purposes.

    Of the latter, services that cannot serve the purpose are left out.
    """
    if special:
        return choices(special)
    return tuple(each for each in choices(default) if serves(each.name, purpose))


def serves(name: str, purpose: Purpose) -> bool:
    """Say whether a provider serves a purpose; of one without a preset, assume so."""
    return purpose in purposes_of(name)


def purposes_of(name: str) -> frozenset[Purpose]:
    """Return what a provider serves; of one without a preset, assume everything."""
    if name in EMBED_ONLY:
        return frozenset({"embedding"})
    preset = PRESETS.get(name)
    return _all_but() if preset is None else preset.purposes


class Credentials(NamedTuple):
    """How a service is reached, as far as it is set."""

    key: str = ""
    base_url: str = ""


def credentials(preset: Preset, of_openai: Credentials) -> Credentials:
    """Return what is set for a service; OpenAI's are among the platform's settings."""
    if preset is OPENAI:
        return of_openai
    fields: Any = {
        "key": (SecretStr, Field(SecretStr(""), alias=preset.key_variable)),
        "base_url": (ServiceUrl, Field("", alias=preset.url_variable)),
    }
    model = create_model(f"{preset.name}Settings", __base__=BaseSettings, **fields)
    found: Any = read_model(model, {})
    return Credentials(found.key.get_secret_value(), found.base_url)


def is_usable(name: str, of_openai: Credentials) -> bool:
    """Say whether a provider has the key that it needs, if it needs one."""
    preset = PRESETS.get(name)
    needs_one = preset is not None and preset.needs_key
    return not needs_one or bool(credentials(PRESETS[name], of_openai).key)
