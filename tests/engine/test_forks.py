"""Forks: a new job that begins with the first steps of another one."""

import asyncio

import pytest

from backburner import (
    Context,
    Flow,
    IllegalTransition,
    InvalidInput,
    PermanentError,
    capability,
)
from backburner.domain.events.event import FORKED
from backburner.engine.run.forking import fork
from backburner.testing.broker.acts import pause
from tests.engine.conftest import Counting


def writing(computed):
    """A capability with two model calls and a named step between them."""

    @capability("write", max_attempts=1)
    async def write(ctx: Context, topic: str) -> list[str]:
        outline = await ctx.ask(f"outline {topic}")

        def check(text: str) -> str:
            computed.append(text)
            return f"checked {len(text) and len(computed)}"

        checked = await ctx.step("check", check, "x" * 100_000)
        return [outline, checked, await ctx.ask(f"text {topic} {checked}")]

    return write


async def test_a_fork_uses_the_steps_before_and_runs_the_others(running):
    computed, provider = [], Counting()
    write = writing(computed)
    backburner = await running(write, provider)
    first = await backburner.submit(write, "tea")
    outline, checked, _ = await first.result()
    made = await fork(backburner.engine, first.id, 2)
    again = await backburner.engine.wait(made.job.id, timeout=60)

    assert f'["{outline}","checked 2","text tea checked 2 3"]' == again.output
    assert ["outline tea", "text tea checked 1", "text tea checked 2"] == provider.asked
    assert f"forked-from:{first.id}" in again.tags
    history = await backburner.engine.store.history(again.id, after=0, limit=9)
    assert {"from": first.id, "steps": 1} == next(
        event.data for event in history if event.type == FORKED
    )
    assert "checked 1" == checked


async def test_a_fork_with_another_input_uses_results_in_their_order(running):
    computed, provider = [], Counting()
    write = writing(computed)
    backburner = await running(write, provider)
    first = await backburner.submit(write, "tea")
    await first.result()
    made = await fork(backburner.engine, first.id, 3, "coffee")
    again = await backburner.engine.wait(made.job.id, timeout=60)

    # The result of more than 64 KiB is read as well; the question has the new topic.
    assert '["outline tea 1","checked 1","text coffee checked 1 3"]' == again.output
    assert "text coffee checked 1" == provider.asked[-1]
    assert 3 == len(provider.asked)


async def test_a_fork_that_fails_is_retried_with_the_same_results(running):
    provider, fail = Counting(), [PermanentError("no")]

    @capability("two", max_attempts=1)
    async def two(ctx: Context, topic: str) -> str:
        answers = [await ctx.ask(f"{n} {topic}") for n in range(2)]
        if topic == "coffee" and fail:
            raise fail.pop()
        return " ".join(answers)

    backburner = await running(two, provider)
    first = await backburner.submit(two, "tea")
    await first.result()
    made = await fork(backburner.engine, first.id, 2, "coffee")
    assert "failed" == (await backburner.engine.wait(made.job.id, timeout=60)).state
    await backburner.engine.retry(made.job.id)
    ended = await backburner.engine.wait(made.job.id, timeout=60)
    assert ('"0 tea 1 1 coffee 3"', 3) == (ended.output, len(provider.asked))


async def test_concurrent_steps_are_forked_with_the_same_input_only(running):
    class Slow(Counting):
        async def chat(self, chat, hear=None):
            await pause()
            return await super().chat(chat, hear)

    provider = Slow()

    @capability("both", max_attempts=1)
    async def both(ctx: Context, topic: str) -> int:
        await asyncio.gather(*(ctx.ask(f"{n} {topic}") for n in range(2)))
        await ctx.step("last", bool)
        return len(provider.asked)

    backburner = await running(both, provider)
    first = await backburner.submit(both, "tea")
    await first.result()
    with pytest.raises(IllegalTransition, match="concurrently"):
        await fork(backburner.engine, first.id, "last", "coffee")
    made = await fork(backburner.engine, first.id, "last")
    assert "2" == (await backburner.engine.wait(made.job.id, timeout=60)).output


async def test_what_cannot_be_forked_says_why(running):
    gate = asyncio.Event()

    @capability("wait", max_attempts=1)
    async def wait(ctx: Context, _value: int) -> None:
        await ctx.step("one", bool)
        await gate.wait()

    backburner = await running(wait)
    ticket = await backburner.submit(wait, 1)
    with pytest.raises(IllegalTransition, match="it can be forked when it has ended"):
        await fork(backburner.engine, ticket.id, 1)
    gate.set()
    await ticket.result()
    for start in ("two", 3, 0):
        with pytest.raises(InvalidInput, match="1 one"):
            await fork(backburner.engine, ticket.id, start)
    with pytest.raises(InvalidInput):
        await fork(backburner.engine, ticket.id, 1, "no number")
    flow = Flow()
    flow.add(wait, 1)
    made = await backburner.submit_flow(flow)
    steps = await backburner.engine.flows.steps(await made.wait(60))
    with pytest.raises(IllegalTransition, match="step of a flow"):
        await fork(backburner.engine, steps[0].job.id, 1)


async def test_a_fork_whose_handler_has_other_steps_fails_clearly(running):
    @capability("other", max_attempts=1)
    async def other(ctx: Context, topic: str) -> None:
        if topic == "tea":
            await ctx.step("one", bool)
        await ctx.step("two", bool)

    backburner = await running(other)
    first = await backburner.submit(other, "tea")
    await first.result()
    made = await fork(backburner.engine, first.id, "two", "coffee")
    ended = await backburner.engine.wait(made.job.id, timeout=60)
    assert "STEP_MISMATCH" == ended.error.code
