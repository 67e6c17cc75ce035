"""Handlers that call a provider by a lane, in a real instance."""

import asyncio
import types

import pytest
import structlog

from backburner import Backburner, Context, Lane, Throttled, capability
from backburner.domain.events.event import LANE_THROTTLED, THROTTLED
from backburner.domain.jobs.job import JobState
from backburner.engine.observability import telemetry
from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.events import Topic
from backburner.settings import Settings
from backburner.testing.broker.acts import pause
from backburner.testing.doubles import FakeContext

SOON = {"Retry-After-Ms": "300"}
LATER = {"Retry-After": "60"}


class Provider:
    """Answers as it was told to, then with 200; it counts who is with it at once."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = self.at_once = self.most = 0
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def call(self):
        self.calls += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.is_open.wait()
            return self.answers.pop(0) if self.answers else (200, {})
        finally:
            self.at_once -= 1


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def ask(provider):
    """A capability that calls the provider by the lane that it is told."""

    @capability("ask", max_attempts=1)
    async def ask(ctx: Context, lane: str) -> int:
        async with ctx.lane(lane, "model") as call:
            status, headers = await provider.call()
            call.hear(status, headers)
            return status

    return ask


async def lanes(backburner):
    return {view.state.name: view for view in await backburner.engine.store.lanes()}


async def none_in_use(backburner, name):
    async with asyncio.timeout(60):
        while (await lanes(backburner))[name].in_use:
            await pause()


async def test_a_refused_call_costs_no_attempt(working, ended, told, ask, provider):
    provider.answers = [(429, SOON), (529, SOON)]
    backburner = await working(ask)
    ticket = await backburner.submit(ask, "acme")
    put_back = await told(ticket, THROTTLED)
    job = await ended(ticket)

    assert (JobState.SUCCEEDED, "200", 1) == (job.state, job.output, job.attempt)
    assert 3 == provider.calls
    assert "acme/model" == put_back.data["lane"]
    assert "THROTTLED" == put_back.data["error"]["code"]
    assert put_back.data["error"]["retry_after"] >= 0.3
    assert job.throttled >= 600


async def test_a_refusal_keeps_all_others_off_its_lane_and_off_no_other(
    working, ended, told, ask, provider
):
    provider.answers = [(429, LATER)]
    backburner = await working(ask)
    first = await backburner.submit(ask, "acme")
    await told(first, THROTTLED)
    calls = provider.calls
    others = [await backburner.submit(ask, "acme") for _ in range(5)]
    for ticket in others:
        await told(ticket, THROTTLED)
    kept_off = provider.calls - calls
    elsewhere = await ended(await backburner.submit(ask, "other"))
    view = (await lanes(backburner))["acme/model"]

    assert 0 == kept_off, "a parked lane lets nobody call"
    assert JobState.SUCCEEDED is elsewhere.state
    assert 55_000 < view.state.parked_until - view.now <= 60_000
    ids = [ticket.id for ticket in [first, *others]]
    states = {job.state for job in await backburner.engine.store.find(ids)}
    assert {JobState.SCHEDULED} == states


async def test_a_job_that_waits_for_its_lane_holds_no_slot(
    working, ended, told, ask, provider
):
    provider.answers = [(429, LATER)]
    backburner = await working(ask, slots=1)
    for _ in range(3):
        await told(await backburner.submit(ask, "acme"), THROTTLED)

    job = await ended(await backburner.submit(ask, "other"))

    assert JobState.SUCCEEDED is job.state


async def test_no_more_are_with_the_provider_than_the_lane_allows(
    path, ended, until, ask, provider
):
    settings = Settings(store=f"sqlite:///{path}", grace_seconds=0, poll_seconds=0.2)
    lane = Lane("acme/model", at_once=2, requests=6000)
    backburner = Backburner(settings, capabilities=[ask], lanes=[lane])
    async with backburner:
        await backburner.start_worker()
        provider.is_open.clear()
        tickets = await backburner.submit_many(ask, ["acme"] * 12)
        await until(lambda: provider.at_once == 2)
        provider.is_open.set()
        jobs = [await ended(ticket) for ticket in tickets]
        most = provider.most
        await none_in_use(backburner, "acme/model")

    assert {JobState.SUCCEEDED} == {job.state for job in jobs}
    assert 2 == most


async def test_without_a_limit_more_are_with_the_provider(
    working, ended, until, ask, provider
):
    backburner = await working(ask)
    provider.is_open.clear()
    tickets = await backburner.submit_many(ask, ["acme"] * 3)
    await until(lambda: provider.at_once == 3)
    provider.is_open.set()
    for ticket in tickets:
        await ended(ticket)

    assert 3 == provider.most


async def test_a_cancelled_job_gives_its_permit_back(working, until, ask, provider):
    backburner = await working(ask)
    provider.is_open.clear()
    ticket = await backburner.submit(ask, "acme")
    await until(lambda: provider.at_once == 1)
    held = (await lanes(backburner))["acme/model"].in_use
    await backburner.cancel(ticket.id)
    await none_in_use(backburner, "acme/model")

    assert 1 == held


async def test_a_lane_opens_as_soon_as_the_call_that_tries_is_answered(
    working, told, ended, until
):
    calls, is_done = [], asyncio.Event()

    @capability("stream", max_attempts=1)
    async def stream(ctx: Context, _value: int) -> int:
        async with ctx.lane("acme", "model") as call:
            calls.append(ctx.job.id)
            if len(calls) == 1:
                call.hear(429, SOON)
            call.hear(200)
            await is_done.wait()
            return len(calls)

    backburner = await working(stream)
    first = await backburner.submit(stream, 1)
    await told(first, THROTTLED)
    await until(lambda: len(calls) == 2)
    second = await backburner.submit(stream, 2)
    await until(lambda: len(calls) == 3)
    is_done.set()

    assert JobState.SUCCEEDED is (await ended(first)).state
    assert JobState.SUCCEEDED is (await ended(second)).state


async def test_what_the_provider_allows_is_believed(working, ended, ask, provider):
    provider.answers = [(200, {"x-ratelimit-limit-requests": "7"})]
    backburner = await working(ask)
    await ended(await backburner.submit(ask, "acme"))
    await none_in_use(backburner, "acme/model")

    assert 7 == (await lanes(backburner))["acme/model"].state.told


async def test_a_parked_lane_is_told_on_the_stream_and_counted(
    working, told, ask, provider
):
    provider.answers = [(429, LATER)]
    backburner = await working(ask)
    await told(await backburner.submit(ask, "counted"), THROTTLED)

    topic = Topic(queues=True)
    found = (
        await backburner.engine.store.stream(LOCAL, after=0, limit=50, topic=topic)
    ).events
    told_of = [event.subject for event in found if event.type == LANE_THROTTLED]
    assert ["counted/model"] == told_of
    text = telemetry.metrics().decode()
    assert 'backburner_lane_throttled_total{lane="counted/model"} 1.0' in text
    assert (
        'backburner_lane_calls_total{lane="counted/model",outcome="refused"} 1.0'
        in text
    )


class Refused(Exception):
    """As clients of providers raise it."""

    def __init__(self, status, headers):
        super().__init__("Too Many Requests")
        self.response = types.SimpleNamespace(
            status_code=status, headers=headers, text=""
        )


async def test_an_exception_that_carries_the_answer_is_understood(working, told, ended):
    @capability("raise", max_attempts=1)
    async def raises(ctx: Context, _value: int) -> int:
        async with ctx.lane("acme", "model", credential="sk-very-secret"):
            if not seen:
                seen.append(1)
                raise Refused(429, SOON)
            return 7

    seen = []
    backburner = await working(raises)
    ticket = await backburner.submit(raises, 1)
    put_back = await told(ticket, THROTTLED)
    job = await ended(ticket)

    assert "7" == job.output
    assert put_back.data["lane"].startswith("acme/model#")
    assert "secret" not in str(await backburner.engine.store.lanes())


async def test_any_other_exception_is_the_handlers_own(working, ended):
    @capability("raise", max_attempts=1)
    async def raises(ctx: Context, _value: int) -> int:
        async with ctx.lane("acme", "model"):
            raise Refused(500, {})

    backburner = await working(raises)
    job = await ended(await backburner.submit(raises, 1))

    assert (JobState.FAILED, "UNEXPECTED") == (job.state, job.error.code)
    await none_in_use(backburner, "acme/model")
    assert 0 == (await lanes(backburner))["acme/model"].state.refusals


async def test_a_handler_may_take_another_way_after_a_refusal(working, ended):
    @capability("two_ways", max_attempts=1)
    async def two_ways(ctx: Context, _value: int) -> str:
        try:
            async with ctx.lane("acme", "large") as call:
                call.hear(429, LATER)
        except Throttled:
            async with ctx.lane("acme", "small") as call:
                call.hear(200)
        return "small"

    backburner = await working(two_ways)
    job = await ended(await backburner.submit(two_ways, 1))

    assert (JobState.SUCCEEDED, '"small"') == (job.state, job.output)


async def test_a_handler_that_is_called_by_hand_needs_no_lane(ask, provider):
    assert 200 == await ask.run(FakeContext(), "acme")
    assert 1 == provider.calls


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
async def test_a_name_that_cannot_be_shown_is_refused(name):
    with pytest.raises(ValueError, match="name"):
        FakeContext().lane(name, "" if name else "x" * 201)


async def test_a_worker_warns_of_a_lane_that_no_provider_goes_by(path, ask):
    settings = Settings(store=f"sqlite:///{path}", grace_seconds=0, ai="mock")
    lanes = [Lane("openia/gpt-5-mini", requests=6)]
    with structlog.testing.capture_logs() as lines:
        async with Backburner(settings, capabilities=[ask], lanes=lanes) as backburner:
            await backburner.start_worker()

    said = [line for line in lines if line["event"] == "no provider uses this lane"]
    assert ["openia/gpt-5-mini"] == [line["lane"] for line in said]
    assert "warning" == said[0]["log_level"]
