"""The errors that refuse a request or fail a job."""

from backburner_apps.features.core.codes import LLM_API_ERROR, VALIDATION_ERROR


class FeatureError(Exception):
    """A job failed; its user sees `code` and the message."""

    def __init__(self, message: str, *, code: str, is_retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_retryable = is_retryable


class ValidationFailed(FeatureError):
    """The request, or the file to which it refers, is invalid."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=VALIDATION_ERROR)


class TooLarge(ValidationFailed):
    """The request exceeds a limit: HTTP 413."""


class LlmFailed(FeatureError):
    """
    The model gave no usable answer.

    If `is_retryable`, the job is delivered again, after `retry_after` seconds if the
    provider requested a delay.
    """

    def __init__(
        self,
        message: str,
        *,
        is_retryable: bool,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, code=LLM_API_ERROR, is_retryable=is_retryable)
        self.retry_after = retry_after
