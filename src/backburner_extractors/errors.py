"""The error for a file that could not be read, with a code for each reason."""

from typing import Final

RETRYABLE: Final = frozenset(
    {"CORRUPT_FILE", "OUT_OF_MEMORY", "TIMED_OUT", "EXTRACTOR_CRASHED"}
)
FINAL: Final = frozenset(
    {
        "EMPTY_FILE",
        "ENCRYPTED_FILE",
        "UNSUPPORTED_TYPE",
        "ARCHIVE_TOO_LARGE",
        "IMAGE_TOO_LARGE",
        "TOO_MANY_PAGES",
        "TEXT_TOO_LARGE",
        "OCR_UNAVAILABLE",
        "LIBRARY_MISSING",
    }
)
CODES: Final = RETRYABLE | FINAL


class ExtractionError(Exception):
    """
    A file that could not be read.

    The message contains no text of the file and not its name, so it may be logged.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    @property
    def is_retryable(self) -> bool:
        """Whether another attempt may succeed without a change of the file."""
        return self.code in RETRYABLE

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def encrypted() -> ExtractionError:
    """Return the error for a file that needs a password."""
    return ExtractionError(
        "ENCRYPTED_FILE", "The file is encrypted. Remove the password and try again."
    )
