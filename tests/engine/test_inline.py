"""Capabilities that are run without a job, and by hand in a test."""

import asyncio

from backburner import Context, capability
from backburner.engine.run.streaming import MOST_UNTOLD
from backburner.testing.doubles import FakeContext

SOME = MOST_UNTOLD // 2 + 1


@capability("write-much")
async def write_much(ctx: Context, count: int) -> int:
    for _ in range(count):
        await ctx.progress(1, count)
        await ctx.emit("x" * SOME)
    return len(ctx.text)


async def test_a_text_of_any_length_can_be_emitted_without_a_job(submitting):
    backburner = await submitting(write_much)

    async with asyncio.timeout(60):
        assert 5 * SOME == await backburner.run(write_much, 5)


async def test_a_text_of_any_length_can_be_emitted_in_a_fake_context():
    ctx = FakeContext()

    async with asyncio.timeout(60):
        assert 5 * SOME == await write_much.run(ctx, 5)
    assert 5 == len(ctx.told)
