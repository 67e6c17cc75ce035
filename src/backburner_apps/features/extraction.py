"""Converts results and errors of the extractors; independent of the platform."""

from typing import Final

from backburner_apps.features.core.codes import INTERNAL_ERROR
from backburner_apps.features.core.errors import FeatureError, ValidationFailed
from backburner_extractors import Extracted, ExtractionError

OURS: Final = frozenset({"OUT_OF_MEMORY", "TIMED_OUT", "EXTRACTOR_CRASHED"})
"""Codes of failures that the file may not have caused, and that are retried."""


def text_of(extracted: Extracted) -> str:
    """Return the text of all pages."""
    return "\n\n".join(page.text for page in extracted.pages if page.text.strip())


def refusal(error: ExtractionError) -> FeatureError:
    """Return the error for a feature: retryable, or that the file is invalid."""
    if error.code in OURS:
        message = f"the file could not be read: {error.code}"
        return FeatureError(message, code=INTERNAL_ERROR, is_retryable=True)
    return ValidationFailed(f"the file cannot be read: {error.code}")
