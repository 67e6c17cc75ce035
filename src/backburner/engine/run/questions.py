"""
Questions to people that a handler asks: a wait whose signal is an answer.

An answer that does not match the choices or the handler's type is discarded, and the
question is asked again with the reason: one wrong answer does not fail the job.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import orjson
from pydantic import BaseModel
from pydantic_core import to_json

from backburner.domain.errors import PermanentError, readable
from backburner.domain.jobs.job import WaitReason
from backburner.domain.jobs.wait import NewWait
from backburner.engine.run.steps import adapter_of
from backburner.engine.run.waiting import Waiting, WaitTimedOut, check_name, span_of

T = TypeVar("T")

NO_DEFAULT: Final = object()
MAX_QUESTION: Final = 10_000
MAX_CHOICES: Final = 100
MOST_WRONG: Final = 10
"""How many answers of the wrong type are accepted before the job fails."""


class Resolution(BaseModel, Generic[T]):
    """A person's answer about a step whose worker was lost."""

    done: bool
    result: T | None = None


class Questions:
    """The questions of one run."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._counts: Counter[str] = Counter()

    async def ask(
        self,
        question: str,
        *,
        into: Any,
        choices: Sequence[str] | None,
        limit: float | timedelta | None,
        default: Any,
        name: str | None,
    ) -> Any:
        """Return a person's answer, or the default if none came in time."""
        wanted = adapter_of(str if into is None and choices else into or Any)
        asked = _asked(question, choices, None if into is None else wanted)
        if default is not NO_DEFAULT:
            asked["default"] = _shown(default)
        first = self._name(question) if name is None else check_name(name)
        for count in range(1, MOST_WRONG + 1):
            here = first if count == 1 else f"{first}#{count}"
            text = orjson.dumps(asked).decode()
            wait = NewWait(here, WaitReason.QUESTION, span_of(limit), text)
            decided = await self._waiting.decided(wait)
            if decided.is_timed_out:
                if default is NO_DEFAULT:
                    raise WaitTimedOut(here)
                return default
            value = decided.value or "null"
            if choices is not None and orjson.loads(value) not in choices:
                asked["error"] = "the answer must be one of the choices"
                continue
            try:
                return wanted.validate_json(value)
            except ValueError as error:
                asked["error"] = readable(str(error))[:500]
        raise PermanentError(
            f"{MOST_WRONG} answers to {question[:100]!r} did not match its type",
            code="ANSWERS_INVALID",
        )

    def _name(self, question: str) -> str:
        """Return the name of a question: the same in each run."""
        digest = sha256(question.encode()).hexdigest()[:12]
        self._counts[digest] += 1
        count = self._counts[digest]
        return f"question-{digest}" + (f"-{count}" if count > 1 else "")


def _shown(default: Any) -> Any:
    """Return a default for display; as text if it is long or not JSON."""
    try:
        written = to_json(default, by_alias=True, fallback=repr)
    except ValueError:  # it contains itself, or bytes that are not text
        return repr(default)[:MAX_QUESTION]
    if len(written) > MAX_QUESTION:
        return f"{written[:MAX_QUESTION].decode(errors='ignore')}…"
    return orjson.loads(written)


def _asked(question: str, choices: Sequence[str] | None, wanted: Any) -> dict[str, Any]:
    if not 0 < len(question) <= MAX_QUESTION:
        raise PermanentError(
            f"a question has 1 to {MAX_QUESTION} characters, this one has "
            f"{len(question)}",
            code="QUESTION_INVALID",
        )
    asked: dict[str, Any] = {"question": question}
    if choices is not None:
        if not 0 < len(choices) <= MAX_CHOICES:
            raise PermanentError(
                f"a question has 1 to {MAX_CHOICES} choices, this one {len(choices)}",
                code="QUESTION_INVALID",
            )
        asked["choices"] = list(choices)
    if wanted is not None:
        asked["schema"] = wanted.json_schema()
    return asked
