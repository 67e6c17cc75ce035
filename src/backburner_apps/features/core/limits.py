"""Limits on requests, checked before anything is stored."""

from typing import Final

from backburner_apps.features.core.errors import TooLarge

MAX_FILE_SIZE: Final = 10 * 1024 * 1024
"""Maximum size of an uploaded file, in bytes."""
MAX_TEXT_LENGTH: Final = 1_000_000
"""Maximum characters of a text in a request or of the text in an uploaded file."""


def validate_file_size(size: int) -> None:
    """Raise `TooLarge` if a file has more bytes than allowed."""
    if size > MAX_FILE_SIZE:
        raise TooLarge(
            f"the file has {size} bytes; at most {MAX_FILE_SIZE} are allowed"
        )


def validate_text_length(text: str, name: str = "text") -> None:
    """Raise `TooLarge` if a text has more characters than allowed."""
    if len(text) > MAX_TEXT_LENGTH:
        raise TooLarge(
            f"{name} has {len(text)} characters; at most {MAX_TEXT_LENGTH} are allowed"
        )
