"""Codes and texts that clients see."""

from typing import Final

TIMEOUT: Final = "TIMEOUT"
LLM_API_ERROR: Final = "LLM_API_ERROR"
VALIDATION_ERROR: Final = "VALIDATION_ERROR"
CANCELLED: Final = "CANCELLED"
INTERNAL_ERROR: Final = "INTERNAL_ERROR"
"""Any other failure of a job, for example three lost workers."""
GAP_QUESTIONS_GENERATED: Final = "GAP_QUESTIONS_GENERATED"

CANCELLED_TEXT: Final = "Job cancelled"
INTERNAL_TEXT: Final = "The job could not be processed"
NOT_QUEUED_TEXT: Final = "The job was not queued. Submit it again."

TIMEOUT_SECONDS: Final = 600.0


def timeout_text(seconds: float = TIMEOUT_SECONDS) -> str:
    """Return the error message of a job that exceeded its time limit."""
    minutes, rest = divmod(seconds, 60)
    if minutes and not rest:
        return f"Processing timeout after {minutes:g} minutes"
    return f"Processing timeout after {seconds:g} seconds"
