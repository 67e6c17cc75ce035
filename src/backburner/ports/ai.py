"""What the engine asks of a provider of models."""

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
        """A file name: providers tell kinds of files by its ending."""
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
    """What a call used, as its provider counted it."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Those of the input that the provider had read before."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T_co]):
    """What a provider answered."""

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
    """Which model does what, unless a call says otherwise."""

    chat: str
    embedding: str
    transcription: str
    vision: str


class Access(NamedTuple):
    """How a provider is reached."""

    models: Models
    key: str = ""
    base_url: str = ""
    """Empty: the provider's own."""


class Fault(Exception):
    """
    A call came to nothing. Adapters raise nothing else.

    Its message is for the owner of the job: it holds neither key nor prompt.
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
    Who runs models. It neither retries nor waits by itself.

    A call that is cancelled gives its connection up.
    """

    name: str
    models: Models
    credential: str | None
    """What sets its limits apart from others'; only a digest is written down."""
    is_paced: bool
    """Whether it has limits that the fleet must keep together."""

    async def chat(self, chat: Chat, hear: Hear | None = None) -> Reply[str]:
        """Answer; with `hear`, tell the text as it comes and then as a whole."""
        ...

    async def embed(self, texts: Sequence[str], model: str) -> Reply[Sequence[Vector]]:
        """Return a vector for each text."""
        ...

    async def transcribe(self, audio: Media, model: str) -> Reply[str]:
        """Write down what is said in a recording."""
        ...

    async def describe(self, image: Media, prompt: str, model: str) -> Reply[str]:
        """Answer a question about a picture."""
        ...

    async def close(self) -> None:
        """Give up what is open."""
        ...
