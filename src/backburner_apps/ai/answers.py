"""The answer of a capability of the AI service: its result and its usage."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from backburner import CamelModel, Context, RetryPolicy, Spent
from backburner_apps.contract import Step

QUEUE: Final = "ai-capability-jobs"
"""The queue whose capabilities, except the callback, the AI service offers."""
RETRY: Final = RetryPolicy(max_attempts=3)
"""`min(1 s * 2^n, 30 s) + U(0, 1 s)` between attempts, n from 0."""
PATIENCE: Final = timedelta(minutes=10)
"""Total time that a job may wait for rate limits without using up an attempt."""

T = TypeVar("T")


class Answer(CamelModel, Generic[T]):
    """A result and the usage of its model calls, by step."""

    result: T
    openai_metadata: Mapping[str, Step]


def answered(output: Any) -> dict[str, Any]:
    """
    Return a capability's output as `result` and `openaiMetadata`, and nothing else.

    An output that is not an `Answer` is itself the result.
    """
    if isinstance(output, Mapping) and output.keys() >= {"result", "openaiMetadata"}:
        return {name: output[name] for name in ("result", "openaiMetadata")}
    return {"result": output, "openaiMetadata": {}}


def steps(ctx: Context, first: str, before: Spent) -> dict[str, Step]:
    """
    Return the calls of this attempt by name: `first`, then `first` with a number.

    The usage of the attempts `before` this one is a further step.
    """
    named = {
        first if n == 1 else f"{first}-{n}": Step.model_validate(
            call, from_attributes=True
        )
        for n, call in enumerate(ctx.ai.made, start=1)
    }
    if not before.calls:
        return named
    return {**named, f"{first}-earlier" if named else first: summed(before)}


def summed(used: Spent) -> Step:
    """Return summed usage as one step, with duration 0 because it is unknown."""
    return Step(
        model=", ".join(used.models),
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        duration_ms=0,
    )
