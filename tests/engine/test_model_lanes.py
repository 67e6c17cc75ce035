"""An application's limit on all its model calls, whatever model they go to."""

import asyncio
from datetime import timedelta

import pytest

from backburner import App, Backburner, Context, Lane, ModelUse, capability
from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.settings import Settings
from backburner.testing.broker.acts import pause

LIMIT = Lane("talk/models", at_once=2, requests=60_000)


class Paced(Mock):
    """A provider with limits; it counts who is with it at once."""

    name = "paced"
    is_paced = True

    def __init__(self, *script):
        super().__init__(SystemClock(), script=script)
        self.at_once = self.most = self.calls = 0
        self.is_open = asyncio.Event()

    async def chat(self, chat, hear=None):
        self.calls += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.is_open.wait()
            return await super().chat(chat, hear)
        finally:
            self.at_once -= 1


@capability("talk")
async def talk(ctx: Context, model: str) -> str:
    """Ask a model by its name."""
    return await ctx.ask("hello", model=model)


@pytest.mark.parametrize(("lane", "most"), [(LIMIT, 2), (None, 6)])
async def test_the_calls_of_all_workers_keep_an_applications_limit(
    home_url, lane, most
):
    provider, limit = Paced(), None if lane is None else lambda _settings: lane
    app = App("talk", capabilities=[talk], model_lane=limit)
    settings = Settings(store=home_url, grace_seconds=0, poll_seconds=0.2)
    async with (
        Backburner(settings, apps=[app], ai=provider) as one,
        Backburner(settings, apps=[app], ai=provider) as two,
    ):
        await one.start_worker()
        await two.start_worker()
        tickets = [await one.submit(talk, f"model-{n}") for n in range(6)]
        async with asyncio.timeout(60):
            while provider.most < most:
                await pause()
        provider.is_open.set()
        answers = [await ticket.result() for ticket in tickets]

    assert ["Mock answer to: hello"] * 6 == answers
    assert most == provider.most


async def test_a_refusal_parks_the_models_lane_and_not_the_applications(home_url):
    provider = Paced("429 retry-after=1", "ok")
    provider.is_open.set()
    app = App("talk", capabilities=[talk], model_lane=lambda _settings: LIMIT)
    settings = Settings(store=home_url, grace_seconds=0, poll_seconds=0.2)
    async with Backburner(settings, apps=[app], ai=provider) as backburner:
        await backburner.start_worker()
        ticket = await backburner.submit(talk, "model")
        await ticket.result()
        job = await ticket.job()
        views = {
            each.state.name: each for each in await backburner.engine.store.lanes()
        }

    assert (1, 2) == (job.attempt, provider.calls)
    assert 1 == views["paced/model"].state.parkings
    assert 0 == views["talk/models"].state.parkings
    assert 0 == views["talk/models"].in_use


@capability("like")
async def like(ctx: Context, _value: None) -> str:
    """Return by which model texts are compared."""
    return (await ctx.embed(["a"])).model


@pytest.mark.parametrize("fallback", ["mock", ""])
async def test_a_purpose_that_nobody_serves_falls_back(home_url, fallback):
    use = ModelUse("embedding", is_required=False, code="NONE", fallback=fallback)
    app = App("like", own=[like], models=[use])
    async with Backburner(Settings(store=home_url), apps=[app]) as backburner:
        await backburner.start_worker()
        ticket = await backburner.submit(like, None)
        job = await ticket.wait()

    expected = ('"mock"', None) if fallback else (None, "NONE")
    assert expected == (job.output, job.error and job.error.code)


async def test_a_handler_sees_what_runs_for_too_long(home_url):
    go_on, started = asyncio.Event(), asyncio.Event()

    @capability("long", queue="long")
    async def long(_ctx: Context, _value: None) -> None:
        started.set()
        await go_on.wait()

    @capability("look")
    async def look(ctx: Context, milliseconds: int) -> list[str]:
        span = timedelta(milliseconds=milliseconds)
        return [job.job_id for job in await ctx.running("long", longer_than=span)]

    settings = Settings(store=home_url, grace_seconds=0)
    async with Backburner(settings, capabilities=[long, look]) as backburner:
        await backburner.start_worker()
        ticket = await backburner.submit(long, None)
        await started.wait()

        async def seen(milliseconds):
            return await (await backburner.submit(look, milliseconds)).result()

        assert [] == await seen(600_000)
        async with asyncio.timeout(60):
            while not await seen(1):
                await pause()
        assert [ticket.id] == await seen(1)
        go_on.set()
        await ticket.result()
        assert [] == await seen(1)
