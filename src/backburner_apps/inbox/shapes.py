"""The data formats of the inbox: Telegram's updates, its jobs, a model's answer."""

from datetime import date, datetime, time
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
)

from backburner import CamelModel, PermanentError

LONGEST_TEXT: Final = 10_000
"""Maximum length of a message, in characters; Telegram's own limit is 4,096."""
PAYLOAD_INVALID: Final = "QUEUE_JOB_PAYLOAD_INVALID"
LAST_MINUTE: Final = time(23, 59)


def _storable(text: Any) -> Any:
    """Remove U+0000, which PostgreSQL cannot store."""
    return text.replace("\0", "") if isinstance(text, str) else text


def _day_or_time(text: Any) -> Any:
    """Parse a deadline in ISO 8601; a date without a time means its last minute."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError("must be a text with a time in ISO 8601")  # noqa: TRY004
    try:
        return datetime.combine(date.fromisoformat(text), LAST_MINUTE)
    except ValueError:
        return datetime.fromisoformat(text)


Words = Annotated[str, BeforeValidator(_storable)]
Brief = Annotated[Words, AfterValidator(lambda text: text[:256])]
Line = Annotated[
    str,
    StringConstraints(strict=True, strip_whitespace=True, min_length=1, max_length=500),
    BeforeValidator(_storable),
]
Id = Annotated[int, Field(strict=True, ge=-(2**62), le=2**62)]
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=512)]


class TelegramUser(BaseModel):
    """The sender of a message."""

    id: Id
    is_bot: bool = False
    first_name: Brief = ""
    last_name: Brief | None = None
    username: Brief | None = None
    language_code: Brief | None = None


class Chat(BaseModel):
    """The chat of a message."""

    id: Id


class Recording(BaseModel):
    """A voice message, which is downloaded later."""

    file_id: Name
    file_unique_id: Name
    mime_type: Brief = "audio/ogg"


class TelegramMessage(BaseModel):
    """A new message with the fields that the inbox uses."""

    message_id: Id
    chat: Chat
    sender: TelegramUser | None = Field(None, alias="from")
    text: Words | None = Field(None, max_length=LONGEST_TEXT)
    voice: Recording | None = None


class Update(BaseModel):
    """The body of a call by Telegram; without `message` it is ignored."""

    update_id: Id
    message: TelegramMessage | None = None


class Wire(CamelModel):
    """Base class of inputs and results of jobs."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON data, without fields that are `None`."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Voice(Wire):
    """A voice message to download."""

    file_id: Name
    mime_type: str = Field("audio/ogg", max_length=256)


class Message(Wire):
    """A job of the queue `task-parsing`."""

    user_id: Name
    text: str = Field(strict=True, max_length=LONGEST_TEXT)
    telegram_message_id: Id
    telegram_chat_id: Id
    correlation_id: Name
    idempotency_key: Name
    voice: Voice | None = None
    """Set for a voice message, whose text is empty."""

    @property
    def source_type(self) -> str:
        """The type of the message: `text` or `voice`."""
        return "text" if self.voice is None else "voice"


def message_of(payload: Any) -> Message:
    """Return a job's payload; raise a permanent error if it is invalid."""
    try:
        return Message.model_validate(payload)
    except ValidationError as error:
        fields = {".".join(map(str, fault["loc"])) for fault in error.errors()}
        raise PermanentError(
            f"the payload has invalid fields: {', '.join(sorted(fields))[:300]}",
            code=PAYLOAD_INVALID,
        ) from None


class Subtask(BaseModel):
    """A step of a task."""

    title: Line
    order: int = Field(strict=True, ge=0)


class Task(BaseModel):
    """A task that a model extracts from a message."""

    title: Line
    summary: Annotated[Words, Field(strict=True, max_length=2000)] | None = None
    deadline: Annotated[datetime, BeforeValidator(_day_or_time)] | None = None
    projectHint: (  # noqa: N815 - the contract's name, as the model is shown it
        Annotated[Words, Field(strict=True, max_length=500)] | None
    ) = None
    subtasks: list[Subtask] = Field(default_factory=list, max_length=20)

    @property
    def steps(self) -> list[str]:
        """The titles of its subtasks in order."""
        ordered = sorted(self.subtasks, key=lambda subtask: subtask.order)
        return [subtask.title for subtask in ordered]


class Parsed(BaseModel):
    """The required form of a model's answer."""

    tasks: list[Task] = Field(min_length=1, max_length=5)
