"""Calls models from a function, with the platform's code and settings."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from aws_lambda_powertools.utilities.parameters import get_secret
from pydantic import BaseModel, SecretStr

from backburner import WorkError, open_asker
from backburner_apps.features.core.codes import TIMEOUT_SECONDS
from backburner_apps.features.model import MOCK, llm_failed

M = TypeVar("M", bound=BaseModel)

SECRET_SECONDS: Final = 300
"""Seconds for which the key is cached; then a rotated key is read."""


class FunctionModel:
    """Calls a model by the platform's `Asker`, with parsing and one corrective call."""

    def __init__(self, secret_name: str = "") -> None:
        self._secret_name = secret_name

    async def ask(
        self, prompt: str, *, into: type[M], system: str, example: Callable[[], M]
    ) -> M:
        try:
            async with open_asker(**self._key()) as asker:
                answer = await asker.ask(
                    prompt, into=into, system=system, seconds=TIMEOUT_SECONDS
                )
                is_mock = asker.calls[-1].provider == MOCK
        except WorkError as error:
            raise llm_failed(error) from error
        return example() if is_mock else answer

    def _key(self) -> dict[str, Any]:
        if not self._secret_name:
            return {}
        key = get_secret(self._secret_name, max_age=SECRET_SECONDS)
        return {"openai_api_key": SecretStr(str(key))}
