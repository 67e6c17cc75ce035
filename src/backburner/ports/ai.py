"""The contract of a model provider."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from backburner.domain.ai import Trouble

T_co = TypeVar("T_co", covariant=True)

Vector = Sequence[float]
Hear = Callable[[str], Awaitable[None]]
"""Receives each piece of text as it arrives."""


class Message(NamedTuple):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


class Media(NamedTuple):
    """An audio recording or an image."""

    content: bytes
    mime_type: str
    """For example `audio/ogg` or `image/png`."""

    @property
    def name(self) -> str:
        """A file name, by whose extension providers detect the type."""
        return f"file.{self.mime_type.partition('/')[2].partition(';')[0] or 'bin'}"


@dataclass(frozen=True, slots=True)
class Chat:
    """A request to a chat model."""

    messages: Sequence[Message]
    model: str
    temperature: float | None = None
    """`None`: the provider's default."""
    max_tokens: int | None = None
    """The maximum number of tokens of the answer."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema that the answer should match; the messages contain it as well."""


class Tokens(NamedTuple):
    """The tokens of a call, as counted by its provider."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """The input tokens that the provider had cached."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T_co]):
    """A provider's response."""

    content: T_co
    model: str
    """The provider's name of the model."""
    tokens: Tokens | None = None
    """`None`: the provider did not count them."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The response headers, which may contain rate limits."""
    is_truncated: bool = False
    """Whether the answer ended because it reached a token limit."""


class Models(NamedTuple):
    """The default model for each purpose."""

    chat: str
    embedding: str
    transcription: str
    vision: str


class Access(NamedTuple):
    """URL and credentials of a provider."""

    models: Models
    key: str = ""
    base_url: str = ""
    """Empty: the provider's default URL."""


class Fault(Exception):
    """
    A failed call. Adapters raise no other exception.

    The message is shown to the owner of the job: it contains neither key nor prompt.
    """

    def __init__(
        self,
        trouble: Trouble,
        message: str,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        reply: Reply[Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.trouble = trouble
        # Lanes read the provider's response from these attributes.
        self.status_code = status
        self.headers = headers or {}
        self.body = body
        self.reply = reply
        """A response that arrived all the same: it may have to be paid for."""


class Provider(Protocol):
    """
    Calls models. It neither retries nor waits.

    A cancelled call closes its connection.
    """

    name: str
    models: Models
    credential: str | None
    """
    Distinguishes its rate limits from those of other credentials; only a digest is
    stored.
    """
    is_paced: bool
    """Whether it has rate limits that all workers must share."""

    async def chat(self, chat: Chat, hear: Hear | None = None) -> Reply[str]:
        """Return an answer; with `hear`, pass on the text as it arrives."""
        ...

    async def embed(self, texts: Sequence[str], model: str) -> Reply[Sequence[Vector]]:
        """Return a vector for each text."""
        ...

    async def transcribe(self, audio: Media, model: str) -> Reply[str]:
        """Return the transcript of a recording."""
        ...

    async def describe(self, image: Media, prompt: str, model: str) -> Reply[str]:
        """Answer a question about a picture."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
