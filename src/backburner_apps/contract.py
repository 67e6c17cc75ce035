"""The fields of messages between the Tasks and the AI service, which share no more."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from backburner import CamelModel

TOPIC: Final = "ai-callback"
"""Topic of callbacks, from which sender and receiver derive the same secret."""
LONGEST: Final = 10_000
"""Maximum length of a sentence, in characters; at least one must be visible."""


def _storable(text: Any) -> Any:
    """Remove U+0000, which PostgreSQL cannot store, from a model's text."""
    return text.replace("\0", "") if isinstance(text, str) else text


Sentence = Annotated[
    str,
    StringConstraints(
        strict=True,
        strip_whitespace=True,
        min_length=1,
        max_length=LONGEST,
        pattern=r"[^\p{Cc}\p{Cf}\p{Z}]",
    ),
]
Words = Annotated[str, BeforeValidator(_storable)]
Line = Annotated[
    Words, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)
]
Priority = Literal["low", "medium", "high", "urgent"]
Amount = Annotated[int, Field(ge=0, le=2**53)]
UserId = (
    Annotated[int, Field(strict=True, ge=1, le=2**53)]
    | Annotated[
        str,
        StringConstraints(
            strict=True, max_length=400, pattern=r"^\P{C}*[^\p{C}\p{Z}]\P{C}*$"
        ),
    ]
)
"""A positive integer or printable text, returned with the same JSON type."""


class Subtask(CamelModel):
    """A step of a task."""

    title: Line


class Step(CamelModel):
    """One call of a model."""

    model: str
    input_tokens: Amount
    output_tokens: Amount
    duration_ms: Amount


class TokenReservation(CamelModel, strict=True):
    """The tokens that the caller holds for the request; returned unchanged."""

    tokens_reserved: Amount
    window_start_timestamp: Amount
