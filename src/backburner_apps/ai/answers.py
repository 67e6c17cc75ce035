"""What a capability of the AI service answers: its result, and what it took."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from backburner import CamelModel, Context, RetryPolicy, Spent
from backburner_apps.contract import Step

QUEUE: Final = "ai-capability-jobs"
"""The AI service offers every capability on this queue, except its callback."""
RETRY: Final = RetryPolicy(max_attempts=3)
"""`min(1 s * 2^n, 30 s) + U(0, 1 s)` between attempts, n from 0."""
PATIENCE: Final = timedelta(minutes=10)
"""How long a job may be told to wait in all, at no cost of an attempt."""

T = TypeVar("T")


class Answer(CamelModel, Generic[T]):
    """A result, and by step what the calls for it took."""

    result: T
    openai_metadata: Mapping[str, Step]


def answered(output: Any) -> dict[str, Any]:
    """
    Return a capability's output as `result` and `openaiMetadata`, and nothing else.

    An output that is no `Answer` is the result by itself.
    """
    if isinstance(output, Mapping) and output.keys() >= {"result", "openaiMetadata"}:
        return {name: output[name] for name in ("result", "openaiMetadata")}
    return {"result": output, "openaiMetadata": {}}


def steps(ctx: Context, first: str, before: Spent) -> dict[str, Step]:
    """
    Name the calls of this attempt: the first as told, those after it by number.

    What attempts `before` this one used is one step more: it was paid for as well.
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
    """Write calls that were added up as one step; how long they took is not known."""
    return Step(
        model=", ".join(used.models),
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        duration_ms=0,
    )
