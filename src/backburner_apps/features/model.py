"""The model of a running job: `ctx.ask`, with errors that features know."""

from collections.abc import Callable
from typing import Final, TypeVar

from pydantic import BaseModel

from backburner import Context, Throttled, TransientError, WorkError
from backburner_apps.features.core.errors import LlmFailed

M = TypeVar("M", bound=BaseModel)

MOCK: Final = "mock"
"""The provider that invents answers: features answer better themselves."""
OF_MODELS: Final = "AI_"
"""How the codes of errors begin that are a model's."""


class ContextModel:
    """Asks models on behalf of a job: by lanes, booked, with one corrective call."""

    def __init__(self, ctx: Context, seconds: float) -> None:
        self._ctx = ctx
        self._seconds = seconds

    async def ask(
        self, prompt: str, *, into: type[M], system: str, example: Callable[[], M]
    ) -> M:
        """Return the answer; raises `LlmFailed` if a model has none."""
        try:
            answer = await self._ctx.ask(
                prompt, into=into, system=system, seconds=self._seconds
            )
        except WorkError as error:
            if not error.problem_code.startswith(OF_MODELS):
                raise  # a full lane or an exhausted budget is the engine's affair
            raise llm_failed(error) from error
        is_mock = self._ctx.ai.calls[-1].provider == MOCK
        return example() if is_mock else answer


def llm_failed(error: WorkError) -> LlmFailed:
    """Say what an error of the platform means to a feature."""
    return LlmFailed(
        f"{error.problem_code}: the model gave no usable answer",
        is_retryable=isinstance(error, TransientError),
        retry_after=error.retry_after if isinstance(error, Throttled) else None,
    )
