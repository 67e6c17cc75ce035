"""Run jobs that have something to log, and write to a file what became of them."""

import asyncio
import sys
from pathlib import Path

from backburner import Backburner, Context, capability
from backburner.engine.observability import telemetry


@capability("bad", max_attempts=1)
async def bad(_ctx: Context, _value: int) -> int:
    raise ValueError("something to log")


@capability("good")
async def good(_ctx: Context, value: int) -> int:
    return value


async def main(store: str, how: str) -> str:
    """Settle a failure, then more jobs; return how all of them ended."""
    if how == "configured":
        telemetry.configure(level="debug", pretty=False)
    async with Backburner(store=store, capabilities=[bad, good]) as backburner:
        await backburner.start_worker()
        failing = await backburner.submit(bad, 1)
        first = await failing.wait(timeout=60)
        others = await backburner.submit_many(good, range(8))
        rest = [await ticket.wait(timeout=60) for ticket in others]
    return " ".join(job.state for job in (first, *rest))


if __name__ == "__main__":
    _, store, answer, how = sys.argv
    Path(answer).write_text(asyncio.run(main(store, how)))
