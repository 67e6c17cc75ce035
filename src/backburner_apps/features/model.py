"""Calls models for a running job by `ctx.ask`, with the errors of features."""

from collections.abc import Callable
from typing import Final, TypeVar

from pydantic import BaseModel

from backburner import Context, Throttled, TransientError, WorkError
from backburner_apps.features.core.errors import LlmFailed

M = TypeVar("M", bound=BaseModel)

MOCK: Final = "mock"
"""The mock provider, in whose place a feature's own example is used."""
OF_MODELS: Final = "AI_"
"""Prefix of the codes of errors that come from a model."""


class ContextModel:
    """Calls models for a job, with lanes, usage and one corrective call."""

    def __init__(self, ctx: Context, seconds: float) -> None:
        self._ctx = ctx
        self._seconds = seconds

    async def ask(
        self, prompt: str, *, into: type[M], system: str, example: Callable[[], M]
    ) -> M:
        """Return the answer; raise `LlmFailed` if there is no valid one."""
        try:
            answer = await self._ctx.ask(
                prompt, into=into, system=system, seconds=self._seconds
            )
        except WorkError as error:
            if not error.problem_code.startswith(OF_MODELS):
                raise  # the engine handles a full lane or an exhausted budget
            raise llm_failed(error) from error
        is_mock = self._ctx.ai.calls[-1].provider == MOCK
        return example() if is_mock else answer


def llm_failed(error: WorkError) -> LlmFailed:
    """Return the error of a feature for an error of the platform."""
    return LlmFailed(
        f"{error.problem_code}: the model gave no usable answer",
        is_retryable=isinstance(error, TransientError),
        retry_after=error.retry_after if isinstance(error, Throttled) else None,
    )
