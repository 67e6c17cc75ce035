"""A capability that writes a draft, fails, and writes again up to a gate and on."""

import asyncio
from datetime import timedelta
from pathlib import Path

from backburner import App, Context, RetryPolicy, TransientError, capability

AT_ONCE = RetryPolicy(base=timedelta(), jitter=timedelta())


@capability("draft", retry=AT_ONCE)
async def draft(ctx: Context, is_gated: bool = False) -> str:
    if ctx.job.attempt == 1:
        await ctx.emit("a draft\n")
        raise TransientError("not good enough")
    await ctx.emit("the text,")
    if is_gated:
        await asyncio.to_thread(Path("gate").read_bytes)
    await ctx.emit(" to its end\x1b")
    return ctx.text


app = App("drafting", capabilities=[draft])
