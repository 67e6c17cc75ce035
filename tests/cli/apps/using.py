"""A capability that uses a model, and ends or does not."""

import asyncio

from backburner import App, Context, capability


@capability("use", tokens=500, model="fake-1")
async def use(ctx: Context, is_endless: bool = False) -> str:
    ctx.used("fake-1", input_tokens=100, output_tokens=20, cached_tokens=40)
    if is_endless:
        await asyncio.Event().wait()
    return "done"


app = App("using", capabilities=[use])
