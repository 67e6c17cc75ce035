"""A handler that streams: no two of its attempts write the same."""

import asyncio
import os
import time

from pydantic import BaseModel

from backburner import App, Context, capability


class Write(BaseModel):
    """How much to write, and how long to take."""

    words: int = 40
    seconds: float = 1.2


@capability("write")
async def write(ctx: Context, value: Write) -> str:
    """Write some words, with the mark of this attempt on each."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    for word in range(value.words):
        await ctx.emit(f"word {word} by {mark}, ")
        await asyncio.sleep(value.seconds / value.words)  # noqa: TID251 - the work
    return ctx.text


app = App("writing", capabilities=[write])
