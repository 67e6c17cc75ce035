"""The contract of a model provider."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from backburner.domain.ai import Trouble

T_co = TypeVar("T_co", covariant=True)

Vector = Sequence[float]
Hear = Callable[[str], Awaitable[None]]
"""Takes a piece of text as soon as it is there."""


class Message(NamedTuple):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


class Media(NamedTuple):
    """A recording or a picture."""

    content: bytes
    mime_type: str
    """Such as `audio/ogg` or `image/png`."""

    @property
    def name(self) -> str:
        """A file name; providers detect the type by its extension."""
        return f"file.{self.mime_type.partition('/')[2].partition(';')[0] or 'bin'}"


@dataclass(frozen=True, slots=True)
class Chat:
    """A question to a model."""

    messages: Sequence[Message]
    model: str
    temperature: float | None = None
    """Unless told, the provider's own."""
    max_tokens: int | None = None
    """The most that the answer may have."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema that the answer should match; the messages say so, too."""


class Tokens(NamedTuple):
    """The tokens of a call, as counted by its provider."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Those of the input that the provider had read before."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T_co]):
    """A provider's answer."""

    content: T_co
    model: str
    """As the provider calls it."""
    tokens: Tokens | None = None
    """`None`: it did not say."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """What it said of its limits is in there."""
    is_truncated: bool = False
    """Whether it ends only because a limit of tokens was reached."""


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
    """Empty: the provider's own."""


class Fault(Exception):
    """
    A call failed. Adapters raise no other exception.

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
        # By these names a lane understands what the provider said.
        self.status_code = status
        self.headers = headers or {}
        self.body = body
        self.reply = reply
        """What was answered all the same: it may have to be paid for."""


class Provider(Protocol):
    """
    Calls models. It neither retries nor waits.

    A cancelled call closes its connection.
    """

    name: str
    models: Models
    credential: str | None
    """What sets its limits apart from others'; only a digest is written down."""
    is_paced: bool
    """Whether it has limits that the fleet must keep together."""

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
