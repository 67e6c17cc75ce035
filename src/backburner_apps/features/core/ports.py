"""The interfaces that a deployment implements for features, besides job records."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from pydantic import BaseModel

from backburner_apps.features.core.codes import TIMEOUT_SECONDS
from backburner_apps.features.core.dal import JobsDalHandler
from backburner_apps.features.core.errors import LlmFailed, ValidationFailed
from backburner_apps.features.core.records import JobRecord, Retention

M = TypeVar("M", bound=BaseModel)


class Model(Protocol):
    """Calls a language model."""

    async def ask(
        self, prompt: str, *, into: type[M], system: str, example: Callable[[], M]
    ) -> M:
        """
        Return the model's answer as the given type.

        If an answer is invalid, the model gets it back with the errors, once. Raises
        `LlmFailed`. With the mock provider, returns `example()`.
        """
        ...


class Files(Protocol):
    """Reads files that users have uploaded."""

    async def check(self, user_id: str, key: str) -> None:
        """Raise `ValidationFailed` for a missing file, `TooLarge` for a large one."""
        ...

    async def read_text(self, user_id: str, key: str) -> str:
        """Return the text of a file; raises `ValidationFailed` if it has none."""
        ...


class Results(Protocol):
    """Stores results, at most one per job."""

    async def find(self, record: JobRecord) -> str | None:
        """Return the key of a job's result, also of an earlier run, or `None`."""
        ...

    async def write(self, record: JobRecord, content: bytes) -> str:
        """Store the result durably; return its key."""
        ...

    async def sign(self, record: JobRecord) -> str | None:
        """Return a URL that serves the result for one hour; `None` if it is gone."""
        ...


class Meter(Protocol):
    """Records the metrics of jobs."""

    def submitted(self, record: JobRecord) -> None:
        """Count an accepted job."""
        ...

    def ended(self, record: JobRecord) -> None:
        """Count a job that is completed or has failed."""
        ...

    def processed(self, feature: str, seconds: float) -> None:
        """Record how long one run took."""
        ...

    def asked(self, feature: str, seconds: float) -> None:
        """Record how long one model call took."""
        ...


class NoModel:
    """A model for processes that run no jobs; each call fails."""

    async def ask(
        self, prompt: str, *, into: type[M], system: str, example: Callable[[], M]
    ) -> M:
        """Raise `LlmFailed`."""
        del prompt, into, system, example
        raise LlmFailed("no model is set up here", is_retryable=False)


class NoFiles:
    """Uploaded files for deployments without uploads; each call fails."""

    async def check(self, user_id: str, key: str) -> None:
        """Raise: there is no such file."""
        del user_id, key
        raise ValidationFailed("user_cv_key: no such upload")

    async def read_text(self, user_id: str, key: str) -> str:
        """Raise: there is no such file."""
        del user_id, key
        raise ValidationFailed("user_cv_key: no such upload")


@dataclass(frozen=True, slots=True)
class Deployment:
    """The implementations with which a feature runs."""

    jobs: JobsDalHandler
    results: Results
    meter: Meter
    now: Callable[[], datetime]
    model: Model = field(default_factory=NoModel)
    files: Files = field(default_factory=NoFiles)
    retention: Retention = field(default_factory=Retention)
    timeout_seconds: float = TIMEOUT_SECONDS

    def seconds(self) -> float:
        """Return the time of a monotonic clock, in seconds."""
        return asyncio.get_running_loop().time()
