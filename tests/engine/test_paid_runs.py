"""A run that has paid for a model call does not start over free of charge."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import BaseModel

from backburner import (
    Backburner,
    Budget,
    BudgetExhausted,
    Context,
    Lane,
    RetryPolicy,
    TransientError,
    capability,
)
from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.domain.ai import CORRECTION, Trouble
from backburner.domain.costs.budget import Balance
from backburner.domain.jobs.job import JobState
from backburner.engine.models.lanes import LANE_TIMEOUT
from backburner.ports.ai import Fault, Reply, Tokens
from backburner.settings import Settings
from backburner.testing.broker.acts import pause

SPACING = timedelta(milliseconds=400)
"""Longer than the lane's patience here, as 1.5 s is than that of a second."""
HASTY = {"lane_patience_seconds": 0.05, "grace_seconds": 0, "poll_seconds": 0.2}


class Answer(BaseModel):
    title: str


class Paced(Mock):
    """A provider with a lane; it answers as it is told and counts its calls."""

    is_paced = True

    def __init__(self, *answers):
        super().__init__(SystemClock())
        self.name = "acme"
        self.answers = list(answers)
        self.calls = 0

    async def chat(self, chat, _hear=None):
        self.calls += 1
        answer = self.answers.pop(0) if self.answers else '{"title": "done"}'
        if isinstance(answer, Fault):
            raise answer
        return Reply(answer, chat.model, Tokens(60, 40))


class Slow(Paced):
    """Answers as it should only if it is corrected."""

    async def chat(self, chat, hear=None):
        is_corrected = chat.messages[-1].text.startswith(CORRECTION)
        self.answers = [] if is_corrected else ["no JSON"]
        return await super().chat(chat, hear)


@pytest.fixture
def working_by(home_url):
    """Open an instance whose model calls go by a lane with a spacing."""

    def opened(one, provider=None, spacing=SPACING, lane="acme/mock", **settings):
        return Backburner(
            Settings(store=home_url, **{**HASTY, **settings}),
            capabilities=[one],
            lanes=[Lane(lane, spacing=spacing)],
            ai=provider or Paced(),
        )

    return opened


def twice(calls, **options):
    """A capability that takes the lane twice and uses 100 tokens each time."""

    @capability("twice", tokens=200, **options)
    async def twice(ctx: Context, _value: None) -> int:
        for _ in range(2):
            async with ctx.lane("acme", "mock"):
                calls.append(ctx.job.attempt)
            ctx.used("mock", input_tokens=60, output_tokens=40)
        return len(calls)

    return twice


async def balance(backburner):
    [state] = await backburner.budgets.accounts()
    return state.balance


async def test_the_second_lane_is_waited_for_in_place(working_by, ended):
    calls = []
    one = twice(calls)
    async with working_by(one) as backburner:
        await backburner.budgets.put(Budget("tenant", tokens=1_000))
        await backburner.start_worker()
        job = await ended(await backburner.submit(one, None))
        settled = await balance(backburner)

    assert (JobState.SUCCEEDED, [1, 1]) == (job.state, calls)
    assert Balance(settled=200) == settled


async def test_a_correction_is_waited_for_in_place(working_by, ended):
    @capability("parse")
    async def parse(ctx: Context, text: str) -> Answer:
        return await ctx.ask(text, into=Answer)

    provider = Slow()
    async with working_by(parse, provider) as backburner:
        await backburner.start_worker()
        job = await ended(await backburner.submit(parse, "hello"))

    assert (JobState.SUCCEEDED, 1, 2) == (job.state, job.attempt, provider.calls)


@pytest.mark.parametrize(
    "lanes",
    [
        pytest.param([Lane("acme/mock", requests=1200)], id="declared"),
        # Such a lane begins with a call a second: this takes most of a minute.
        pytest.param([], id="unknown", marks=pytest.mark.chaos),
    ],
)
async def test_jobs_with_two_calls_each_make_two_calls_each(home_url, lanes):
    """At default settings, by a lane on which most jobs wait longer than patience."""

    @capability("two-calls", tokens=200)
    async def two_calls(ctx: Context, text: str) -> str:
        return await ctx.ask(f"{text}, first") + await ctx.ask(f"{text}, second")

    provider = Paced()
    async with Backburner(
        Settings(store=home_url), capabilities=[two_calls], lanes=lanes, ai=provider
    ) as backburner:
        await backburner.budgets.put(Budget("tenant", tokens=40 * 200))
        await backburner.start_worker()
        tickets = [await backburner.submit(two_calls, str(n)) for n in range(40)]
        await asyncio.gather(*(each.result(180) for each in tickets))
        settled = await balance(backburner)

    assert 80 == provider.calls
    assert Balance(settled=80 * 100) == settled


@pytest.mark.parametrize("headers", [{"Retry-After-Ms": "300"}, {}])
async def test_a_refusal_is_waited_for_in_place(working_by, ended, headers):
    @capability("ask-twice", max_attempts=1)
    async def ask_twice(ctx: Context, text: str) -> str:
        return await ctx.ask(text) + await ctx.ask(text)

    refusal = Fault(Trouble.RATE_LIMITED, "later", status=429, headers=headers)
    provider = Paced("one", refusal, "two")
    async with working_by(ask_twice, provider, timedelta()) as backburner:
        await backburner.start_worker()
        job = await ended(await backburner.submit(ask_twice, "hello"))

    assert (JobState.SUCCEEDED, '"onetwo"') == (job.state, job.output)
    assert (1, 3) == (job.attempt, provider.calls), "the first call was paid for twice"


async def test_calls_at_once_are_each_made_once(working_by, ended):
    @capability("gather")
    async def gather(ctx: Context, text: str) -> int:
        return len(await asyncio.gather(*(ctx.ask(text) for _ in range(4))))

    provider = Paced()
    async with working_by(gather, provider) as backburner:
        await backburner.start_worker()
        job = await ended(await backburner.submit(gather, "hello"))

    assert (JobState.SUCCEEDED, "4") == (job.state, job.output)
    assert (1, 4) == (job.attempt, provider.calls)


async def test_a_wait_in_place_that_is_too_long_costs_an_attempt(working_by, ended):
    calls = []
    one = twice(calls, max_attempts=1)
    hour = timedelta(hours=1)
    async with working_by(
        one, spacing=hour, lane_paid_patience_seconds=0.2
    ) as backburner:
        await backburner.start_worker()
        job = await ended(await backburner.submit(one, None))

    assert (JobState.FAILED, LANE_TIMEOUT) == (job.state, job.error.code)
    assert [1] == calls
    assert "0.2 s" in job.error.message


async def test_a_refusal_that_ends_a_paid_run_costs_an_attempt(working_by, ended):
    calls = []

    @capability("own", max_attempts=2)
    async def own(ctx: Context, _value: None) -> None:
        for status in (200, 429):
            async with ctx.lane("acme", "mock") as call:
                calls.append(ctx.job.attempt)
                call.hear(status, {"Retry-After-Ms": "200"})

    async with working_by(own, spacing=timedelta()) as backburner:
        await backburner.start_worker()
        job = await ended(await backburner.submit(own, None))

    assert (JobState.FAILED, "THROTTLED") == (job.state, job.error.code)
    assert [1, 1, 2, 2] == calls, "it ran more often than it has attempts"


def spending(calls, tokens, *, times=50, **options):
    """A capability that would go on calling for a long time."""

    @capability("spend", tokens=200, **options)
    async def spend(ctx: Context, _value: None) -> int:
        for _ in range(times):
            async with ctx.lane("acme", "mock"):
                calls.append(ctx.job.attempt)
            ctx.used("mock", input_tokens=tokens, output_tokens=0)
        raise TransientError("not done yet")

    return spend


AT_ONCE = timedelta()
SOON = RetryPolicy(50, base=timedelta(milliseconds=1), jitter=timedelta())


async def test_a_job_that_has_used_its_budget_up_may_make_no_further_call(
    working_by, ended
):
    calls = []
    spend = spending(calls, 100)
    async with working_by(spend, spacing=AT_ONCE) as backburner:
        await backburner.budgets.put(Budget("tenant", tokens=1_000))
        await backburner.start_worker()
        job = await ended(await backburner.submit(spend, None))
        left = await balance(backburner)

    assert (JobState.FAILED, "OVER_BUDGET") == (job.state, job.error.code)
    assert not job.error.retryable
    assert "0 of 1000 tokens left" in job.error.message
    assert [1] * 10 == calls
    assert Balance(settled=1_000, overdraft=800) == left


@pytest.mark.parametrize(
    ("policies", "calls_made", "code"),
    [
        (["stop"], 2, "BUDGET_EXHAUSTED"),
        (["extend", "stop"], 2, "BUDGET_EXHAUSTED"),
        (["extend"], 10, "OVER_BUDGET"),
    ],
)
async def test_the_strictest_policy_says_whether_a_job_goes_on_beyond_its_hold(
    working_by, ended, policies, calls_made, code
):
    """The hold is for 200 tokens, the budget has 1,000, a call uses 100."""
    calls = []
    spend = spending(calls, 100, retry=SOON)
    async with working_by(spend, spacing=AT_ONCE) as backburner:
        for scope, policy in zip(("tenant", "user"), policies, strict=False):
            await backburner.budgets.put(Budget(scope, tokens=1_000, overrun=policy))
        await backburner.start_worker()
        job = await ended(await backburner.submit(spend, None))
        [left, *_] = [s.balance for s in await backburner.budgets.accounts()]

    assert (JobState.FAILED, code) == (job.state, job.error.code)
    assert (calls_made, 100 * calls_made) == (len(calls), left.settled)
    assert not left.held


async def test_attempts_add_up_against_the_budget(working_by, ended):
    calls = []
    spend = spending(calls, 500, times=1, retry=SOON)
    async with working_by(spend, spacing=AT_ONCE) as backburner:
        await backburner.budgets.put(Budget("tenant", tokens=1_000))
        await backburner.start_worker()
        job = await ended(await backburner.submit(spend, None))

    assert (JobState.FAILED, "OVER_BUDGET") == (job.state, job.error.code)
    assert [1, 2] == calls


async def test_a_model_without_a_lane_is_held_to_the_budget_too(working_by, ended):
    @capability("talk", tokens=200, max_attempts=1)
    async def talk(ctx: Context, text: str) -> None:
        for _ in range(50):
            await ctx.ask(text)

    provider = Paced()
    provider.is_paced = False
    async with working_by(talk, provider) as backburner:
        await backburner.budgets.put(Budget("tenant", tokens=1_000))
        await backburner.start_worker()
        job = await ended(await backburner.submit(talk, "hello"))

    assert ("OVER_BUDGET", 10) == (job.error.code, provider.calls)


async def test_what_a_running_job_used_keeps_others_out_until_it_is_cancelled(
    working_by,
):
    used, over = asyncio.Event(), asyncio.Event()

    @capability("hold-on", tokens=200)
    async def hold_on(ctx: Context, _value: None) -> None:
        ctx.used("mock", input_tokens=900, output_tokens=0)
        used.set()
        await over.wait()

    async with working_by(hold_on) as backburner:
        await backburner.budgets.put(Budget("tenant", tokens=1_000))
        await backburner.start_worker()
        ticket = await backburner.submit(hold_on, None)
        async with asyncio.timeout(60):
            await used.wait()
            while not (open_balance := await balance(backburner)).overdraft:
                await pause()
        with pytest.raises(BudgetExhausted):
            await backburner.submit(hold_on, None)
        await backburner.engine.cancel(ticket.id)
        closed = await balance(backburner)

    assert Balance(held=200, settled=700, overdraft=700) == open_balance
    assert Balance(settled=900, overdraft=700) == closed


async def test_calls_that_outlive_their_handler_are_not_made(working_by, ended):
    calls = []

    @capability("leave", max_attempts=1)
    async def leave(ctx: Context, _value: None) -> None:
        async def call():
            async with ctx.lane("acme", "mock"):
                calls.append(1)

        async with ctx.lane("acme", "mock"):
            left_behind.append(asyncio.create_task(call()))
            await pause()

    left_behind = []
    async with working_by(leave) as backburner:
        await backburner.start_worker()
        job = await ended(await backburner.submit(leave, None))
        [told] = await asyncio.gather(*left_behind, return_exceptions=True)

    assert (JobState.SUCCEEDED, []) == (job.state, calls)
    assert "handler has ended" in str(told)
