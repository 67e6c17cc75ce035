"""What the extractors' answers mean to a feature; needs nothing of the platform."""

from typing import Final

from backburner_apps.features.core.codes import INTERNAL_ERROR
from backburner_apps.features.core.errors import FeatureError, ValidationFailed
from backburner_extractors import Extracted, ExtractionError

OURS: Final = frozenset({"OUT_OF_MEMORY", "TIMED_OUT", "EXTRACTOR_CRASHED"})
"""Codes of failures that may not be the file's fault: worth another attempt."""


def text_of(extracted: Extracted) -> str:
    """Return the text of all pages."""
    return "\n\n".join(page.text for page in extracted.pages if page.text.strip())


def refusal(error: ExtractionError) -> FeatureError:
    """Say what an extractor's error means: the file cannot be used, or try again."""
    if error.code in OURS:
        message = f"the file could not be read: {error.code}"
        return FeatureError(message, code=INTERNAL_ERROR, is_retryable=True)
    return ValidationFailed(f"the file cannot be read: {error.code}")
