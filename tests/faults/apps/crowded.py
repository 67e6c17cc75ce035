"""Work that many transactions meet in: budgets, a cap, flows that grow, failures."""

from breakable import app as breakable
from breakable import leave_one_effect

from backburner import App, Budget, Context, PermanentError, Queue, capability


@capability("grow", queue="crowded", tokens=10)
async def grow(ctx: Context, value: int) -> int:
    """Use tokens; add a step before the last one, or fail, now and then."""
    leave_one_effect(ctx)
    ctx.used("a-model", input_tokens=value % 15, output_tokens=1)
    if value % 7 == 0:
        raise PermanentError("every seventh")
    if value % 3 == 0 and ctx.job.flow is not None:
        ctx.flow.add(grow, value + 1, before=["last"])
    return value


@capability("last", queue="crowded", tokens=10)
async def last(ctx: Context, _value: object) -> list[str]:
    """Come after all others."""
    return sorted(ctx.needs)


app = App(
    "crowded",
    [*breakable.capabilities, grow, last],
    queues=[Queue("crowded", waiting=500, concurrency=30)],
    budgets=[
        Budget("user", tokens=10**9),
        Budget("tenant", tokens=10**9),
        Budget("capability", tokens=10**9),
    ],
)
