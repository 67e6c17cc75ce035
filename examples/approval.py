"""
A job that waits for a signal and asks a person, without holding a slot.

Run it with `python examples/approval.py`: it needs only a folder to write to.
"""

import asyncio
import tempfile
from pathlib import Path

from pydantic import BaseModel

from backburner import Backburner, Context, Settings, capability


class Payment(BaseModel):
    amount: int


@capability("order")
async def order(ctx: Context, item: str) -> str:
    number = await ctx.step("reserve", lambda: 42)  # once, however often it runs
    payment = await ctx.wait("paid", timeout=3600, into=Payment)
    send = await ctx.ask_person(f"Send {item}?", choices=["yes", "no"], name="send")
    return f"order {number}: {item} for {payment.amount}, sent: {send}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(store=f"sqlite:///{Path(folder) / 'jobs.db'}")
        async with Backburner(settings, capabilities=[order]) as bb:
            await bb.start_worker()
            ticket = await bb.submit(order, "a lamp")
            # The signal is stored first: it may come before the handler waits for it.
            await bb.signal(ticket.id, "paid", {"amount": 30})
            async for _ in bb.engine.events(await ticket.job()):
                if questions := await bb.questions():
                    await bb.answer(ticket.id, questions[0].name, "yes")
                    break
            print(await ticket.result())


asyncio.run(main())
