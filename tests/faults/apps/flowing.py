"""Steps of a flow, jobs that follow batches and jobs, a receiver of deliveries."""

from typing import Any

from breakable import app as breakable
from breakable import leave_one_effect

from backburner import App, Context, capability
from backburner.domain.webhooks import delivery


@capability("extract")
async def extract(ctx: Context, value: int) -> int:
    """Leave an effect, so that its settlement has a body."""
    leave_one_effect(ctx)
    return value


@capability("chunk")
async def chunk(ctx: Context, value: int) -> int:
    """Add a step that the next one waits for, now and then."""
    if value % 5 == 0:
        ctx.flow.add(chunk, value + 1, before=["embed"])
    return value


@capability("embed")
async def embed(ctx: Context, _value: Any) -> list[str]:
    return sorted(ctx.needs)


@capability("follow")
async def follow(_ctx: Context, value: dict[str, Any]) -> int:
    return int(value["done"])


@capability("note")
async def note(_ctx: Context, value: dict[str, Any]) -> str:
    """Tell how the job ended that this is the completion of."""
    return str(value["job"]["state"])


@capability(delivery.CAPABILITY, queue=delivery.QUEUE)
async def deliver(_ctx: Context, value: dict[str, Any]) -> str:
    return str(value["type"])


own = [extract, chunk, embed, follow, note, deliver]
app = App("flowing", [*breakable.capabilities, *own])
