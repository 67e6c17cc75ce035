"""Workers that let go of nothing: what a soak must notice."""

import os

from breakable import Work, leave_one_effect

from backburner import App, Context, capability

KEPT = []


@capability("work")
async def work(ctx: Context, _value: Work) -> str:
    """Keep memory, and now and then a descriptor."""
    leave_one_effect(ctx)
    KEPT.append(b"\1" * 65_536)
    if not len(KEPT) % 8:
        os.dup(2)
    return ctx.job.id


app = App("breakable", capabilities=[work])
