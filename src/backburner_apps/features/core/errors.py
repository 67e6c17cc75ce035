"""Why a request is refused or a job fails."""

from backburner_apps.features.core.codes import LLM_API_ERROR, VALIDATION_ERROR


class FeatureError(Exception):
    """A job cannot be done; `code` and the message are shown to its user."""

    def __init__(self, message: str, *, code: str, is_retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_retryable = is_retryable


class ValidationFailed(FeatureError):
    """The request, or the file that it names, cannot be used as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=VALIDATION_ERROR)


class TooLarge(ValidationFailed):
    """The request is over a limit: HTTP 413."""


class LlmFailed(FeatureError):
    """
    The model gave no answer that can be used.

    If it `is_retryable`, the job is delivered again, after `retry_after` seconds if
    the provider named them.
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
