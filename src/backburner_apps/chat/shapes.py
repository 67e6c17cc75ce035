"""Bodies of requests and answers of `chat`, over HTTP and between its jobs."""

import re
from typing import Annotated, Final, Literal, Self
from uuid import uuid4

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    model_validator,
)

from backburner import CamelModel

MAX_BYTES: Final = 25 * 1024 * 1024
"""Maximum size of an attachment."""
MAX_ATTACHMENTS: Final = 10
MAX_TURNS: Final = 100
MAX_TEXT: Final = 32_000
MAX_MEMORY: Final = 4_000

MAX_ID: Final = 100
_ID: Final = re.compile(rf"[A-Za-z0-9._:\-]{{1,{MAX_ID}}}")


def is_id(text: str) -> bool:
    """Return whether a text is a possible id; others are not looked up."""
    return _ID.fullmatch(text) is not None


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain the character U+0000")
    return text


RequestId = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9._:\-]{1,64}$")
]
Identifier = Annotated[
    str, StringConstraints(strict=True, pattern=rf"^[A-Za-z0-9._:\-]{{1,{MAX_ID}}}$")
]
Text = Annotated[
    str,
    StringConstraints(strict=True, max_length=MAX_TEXT),
    AfterValidator(_storable),
]
"""Text without U+0000, which PostgreSQL cannot store."""


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("must be printable")
    return name


Name = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=200),
    AfterValidator(_printable),
]


class Turn(CamelModel):
    """One message of the conversation so far."""

    role: Literal["user", "assistant"]
    content: Text


class Attachment(CamelModel):
    """A file: at a public address, or in the request itself."""

    url: Annotated[str, StringConstraints(strict=True, max_length=2048)] | None = None
    data_url: (
        Annotated[str, StringConstraints(strict=True, pattern="^data:")] | None
    ) = None
    content_type: Annotated[str, StringConstraints(strict=True, max_length=200)]
    name: Name | None = None
    size: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.url is None) == (self.data_url is None):
            raise ValueError("give either url or dataUrl")
        return self

    @property
    def kind(self) -> str:
        """The first part of its media type, for example `audio` or `image`."""
        return self.content_type.partition("/")[0].strip().lower()


class GenerateRequest(CamelModel):
    """A message to reply to."""

    request_id: RequestId | None = None
    personality_id: Identifier
    channel_id: Identifier
    guild_id: Identifier | None = None
    user_id: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
    user_message: Text
    conversation_history: list[Turn] = Field([], max_length=MAX_TURNS)
    attachments: list[Attachment] = Field([], max_length=MAX_ATTACHMENTS)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.user_message.strip() and not self.attachments:
            raise ValueError("userMessage is empty and there is no attachment")
        return self


class Usage(CamelModel):
    """The tokens of all model calls of the `llm-generation` job's last run."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


class Reply(CamelModel):
    """The reply to a message."""

    content: str
    model: str
    personality_name: str
    usage: Usage


class LlmConfig(CamelModel):
    """The model and its temperature; omitted values are the provider's defaults."""

    model: Name | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None


class NewPersonality(CamelModel):
    """A personality to create."""

    id: Identifier = Field(default_factory=lambda: uuid4().hex)
    name: Name
    system_prompt: Annotated[Text, StringConstraints(min_length=1)]
    llm_config: LlmConfig = LlmConfig()
    memory_limit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    shared_memory: bool = False


class PersonalityChange(CamelModel):
    """The fields of a personality to change; omitted ones stay."""

    name: Name = ""
    system_prompt: Annotated[Text, StringConstraints(min_length=1)] = ""
    llm_config: LlmConfig = LlmConfig()
    memory_limit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    shared_memory: bool = False


class NewMemory(CamelModel):
    """A memory to create."""

    content: Annotated[
        str,
        StringConstraints(strict=True, min_length=1, max_length=MAX_MEMORY),
        AfterValidator(_storable),
    ]
