"""A handler that fails after two model calls: the next attempt pays for neither."""

import asyncio
from datetime import timedelta

from backburner import (
    Backburner,
    Context,
    RetryPolicy,
    Settings,
    TransientError,
    capability,
)

SOON = RetryPolicy(base=timedelta(milliseconds=1), jitter=timedelta())
sent: list[str] = []


def send(text: str) -> int:
    sent.append(text)
    return len(sent)


@capability("report", retry=SOON)
async def report(ctx: Context, topic: str) -> str:
    outline = await ctx.ask(f"Outline a report on {topic}.")
    text = await ctx.ask(f"Write it: {outline}")
    number = await ctx.step("send", send, text)
    if ctx.job.attempt == 1:
        raise TransientError("the worker was interrupted here")
    return f"sent as number {number} by attempt {ctx.job.attempt}"


async def main() -> None:
    settings = Settings(store="sqlite:///reports.db", ai="mock")
    async with Backburner(settings, capabilities=[report]) as bb:
        await bb.start_worker()
        ticket = await bb.submit(report, "tea")
        print(await ticket.result())
        job = await ticket.job()
        spent = (await bb.engine.store.spent([job.seq]))[job.seq]
        print(f"{spent.calls} model calls, sent {len(sent)} time")


if __name__ == "__main__":
    asyncio.run(main())
