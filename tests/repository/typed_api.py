"""Calls of the public API; mypy must refuse those marked `refused`, and no other."""

from datetime import timedelta
from typing import assert_type

from pydantic import BaseModel

from backburner import (
    Backburner,
    Context,
    Flow,
    Snooze,
    SubmitOptions,
    Ticket,
    Transaction,
    capability,
)


class Count(BaseModel):
    words: int


@capability("count", tokens=lambda text: 2 * len(text))
async def count(ctx: Context, value: str) -> Count | Snooze:
    await ctx.submit(bullets, b"text")  # refused
    assert_type(await ctx.submit(bullets, value, priority=3), Ticket[list[str]])
    return Count(words=len(value.split()))


@capability("bullets", timeout=30)  # refused
async def bullets(ctx: Context, value: str) -> list[str]:
    del ctx
    return [value]


async def submitted(bb: Backburner) -> None:
    options: SubmitOptions = {"tags": ["night"], "delay": timedelta(seconds=5)}
    assert_type(await bb.submit(bullets, "text", **options), Ticket[list[str]])
    assert_type(await (await bb.submit(count, "text")).result(), Count)
    assert_type(await bb.run(count, "text"), Count)
    await bb.submit("count", 42)
    await bb.submit(bullets, 42)  # refused
    await bb.submit(bullets, "text", tgas=["night"])  # refused
    await bb.submit(bullets, "text", delay=5)  # refused
    await bb.submit_many(bullets, ["text", 42])  # refused
    await bb.run(count, 42)  # refused
    assert_type(await (await bb.submit(count, "text")).result(), int)  # refused


async def in_flows(bb: Backburner) -> None:
    flow = Flow()
    first = flow.add(count, "text")
    flow.add(bullets, after=[first], queue="night")
    flow.map(count, ["one", "two"], before=["bullets"])
    flow.add(count, 42)  # refused
    flow.map(count, [42])  # refused
    flow.add(bullets, "text", quue="night")  # refused
    await bb.submit_flow(flow, tags=["night"])
    await bb.submit_flow(flow, tgas=["night"])  # refused
    await bb.open_batch([(count, "text")], expects=3)  # refused


def in_a_transaction(tx: Transaction) -> None:
    tx.submit(count, "text")
    tx.submit(count, 42)  # refused
