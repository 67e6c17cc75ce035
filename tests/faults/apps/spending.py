"""Work that costs a tenth of a budget."""

from breakable import Work, leave_one_effect

from backburner import App, Budget, Context, PermanentError, capability

LIMIT = 1_000
SHARE = LIMIT // 10


@capability("spend", tokens=SHARE)
async def spend(ctx: Context, _value: Work) -> str:
    """Use as much as was said."""
    leave_one_effect(ctx)
    ctx.used("a-model", input_tokens=SHARE - 1, output_tokens=1)
    return ctx.job.id


@capability("waste", tokens=SHARE)
async def waste(_ctx: Context, _value: Work) -> None:
    """Fail without having used anything."""
    raise PermanentError("no luck")


@capability("overspend", tokens=SHARE)
async def overspend(ctx: Context, _value: Work) -> None:
    """Use three times as much."""
    ctx.used("a-model", input_tokens=3 * SHARE, output_tokens=0)


app = App(
    "spending",
    [spend, waste, overspend],
    budgets=[Budget("user", tokens=LIMIT)],
)
