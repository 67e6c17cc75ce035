"""The same request twice."""

import uuid

from pydantic import BaseModel, Field

from backburner import Context, capability


class Traced(BaseModel):
    """An input with a default that is never the same."""

    x: int
    trace: str = Field(default_factory=lambda: uuid.uuid4().hex)


@capability("traced")
async def traced(_ctx: Context, value: Traced) -> str:
    return value.trace


async def test_a_default_drawn_anew_is_no_other_request(submitting):
    backburner = await submitting(traced)

    first = await backburner.submit(traced, {"x": 1}, idempotency_key="k")
    second = await backburner.submit(traced, {"x": 1}, idempotency_key="k")

    assert not first.replayed
    assert (first.id, True) == (second.id, second.replayed)
