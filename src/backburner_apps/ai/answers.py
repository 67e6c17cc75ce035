"""What a capability of the AI service answers: its result, and what it took."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from backburner import Context, RetryPolicy, Spent

QUEUE: Final = "ai-capability-jobs"
"""Whatever runs on it, the AI service offers; but for callbacks."""
RETRY: Final = RetryPolicy(max_attempts=3)
"""`min(1 s * 2^n, 30 s) + U(0, 1 s)` between attempts, n from 0."""
PATIENCE: Final = timedelta(minutes=10)
"""How long a job may be told to wait in all, at no cost of an attempt."""

T = TypeVar("T")


class Wire(BaseModel):
    """A value whose names are written `inThisWay` on the wire."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Step(Wire):
    """One call of a model."""

    model: str
    input_tokens: int
    output_tokens: int
    duration_ms: int


class Answer(Wire, Generic[T]):
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
    Name the calls that were made: the first as told, those after it by number.

    What attempts `before` this one used is one step more: it was paid for as well.
    """
    told = {
        first if n == 1 else f"{first}-{n}": Step(
            model=call.model,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            duration_ms=call.duration_ms,
        )
        for n, call in enumerate(ctx.ai.calls, start=1)
    }
    if before.calls:
        told[f"{first}-earlier"] = _summed(before)
    return told


def spent(step: str, used: Spent) -> dict[str, Any]:
    """Write calls that were added up as one step's metadata; how long is not known."""
    return {step: _summed(used).model_dump(by_alias=True)}


def _summed(used: Spent) -> Step:
    return Step(
        model=", ".join(used.models),
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        duration_ms=0,
    )
