"""A capability that stores two steps and then fails for good."""

from uuid import uuid4

from backburner import App, Context, PermanentError, capability


@capability("step")
async def step(ctx: Context, fails: bool = True) -> str:
    first = await ctx.step("first", lambda: uuid4().hex)
    await ctx.step("second", lambda: first)
    if fails:
        raise PermanentError("no")
    return first


app = App("stepping", capabilities=[step])
