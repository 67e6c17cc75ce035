"""What jobs use, over HTTP: on the job, added up, quoted before, receipted after."""

import asyncio
import math
from contextlib import aclosing
from datetime import timedelta
from decimal import Decimal

import pytest
from pydantic import BaseModel

from backburner import Context, capability
from backburner.domain.auth.access import ACT
from backburner.domain.costs.budget import Budget
from backburner.domain.events.text import Text
from backburner.http.schemas.usage import ModelCallPage
from backburner.testing.broker.acts import pause
from tests.http.provider import a_provider

PRICES = """{"version": "house-7", "models": {
  "fake-1": {"input": 1, "output": 10, "ceiling": 5000}}}"""


class Chat(BaseModel):
    """Which answers to ask for."""

    calls: int = 1
    model: str = "fake-1"
    then_wait: bool = False


def chatting(provider, waiting=None):
    """Return a capability that asks a provider, and tells what it counted."""

    @capability(
        "test.chat",
        queue="demo",
        tokens=lambda asked: asked.calls * 900,
        model="fake-1",
    )
    async def chat(ctx: Context, asked: Chat) -> str:
        for _ in range(asked.calls):
            used = await provider.ask(asked.model)
            ctx.used(asked.model, **used)
            await ctx.emit("word ")
        if asked.then_wait:
            if waiting is not None:
                waiting.set()
            await asyncio.Event().wait()
        return ctx.text

    return chat


@pytest.fixture
async def provider():
    async with a_provider() as provider:
        yield provider


BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
async def priced(serve, provider):
    return await serve(capabilities=[chatting(provider)], webhooks={"prices": PRICES})


@BOTH
async def test_a_job_tells_what_it_used_and_what_that_cost(priced, provider):
    job = await priced.submit("test.chat", {"calls": 2})
    ended = await priced.ended(job)
    listed = await priced.client.get("/v1/jobs", params={"capability": "test.chat"})

    assert 2 == provider.calls
    assert {
        "calls": 2,
        "input_tokens": provider.input_tokens,
        "output_tokens": provider.output_tokens,
        "cached_tokens": 0,
        "cost_usd": "0.003200",
        "priced": True,
        "unpriced_calls": 0,
        "priced_cost_usd": "0.003200",
        "late_calls": 0,
        "models": ["fake-1"],
        "price_version": "house-7",
    } == ended["usage"]
    assert ended["usage"] == listed.json()["items"][0]["usage"]


async def test_the_calls_of_a_job_are_listed_one_by_one(priced):
    job = await priced.submit("test.chat", {"calls": 3})
    ended = await priced.ended(job)
    path = f"/v1/jobs/{job['id']}/calls"
    whole = (await priced.client.get(path)).json()
    first = await priced.client.get(path, params={"limit": 2})
    rest = await priced.client.get(first.links["next"]["url"])

    assert ModelCallPage.model_validate(whole)
    assert 3 == len(whole["items"])
    assert whole["items"] == first.json()["items"] + rest.json()["items"]
    assert None is whole["next_cursor"] is rest.json()["next_cursor"]
    for name in ("input_tokens", "output_tokens"):
        assert ended["usage"][name] == sum(call[name] for call in whole["items"])
    told = [(call["model"], call["price_version"]) for call in whole["items"]]
    assert [("fake-1", "house-7")] * 3 == told
    cost = sum(Decimal(call["cost_usd"]) for call in whole["items"])
    assert Decimal(ended["usage"]["cost_usd"]) == cost


async def test_a_job_without_calls_lists_none_and_that_of_others_is_not_found(serve):
    server = await serve(keyed=True)
    ann, bob = [
        server.shown(await server.key("acme", user=user)) for user in ("ann", "bob")
    ]
    server.client.headers.update(ann)
    job = await server.ended(await server.submit())
    path = f"/v1/jobs/{job['id']}/calls"
    mine = await server.client.get(path)
    theirs = await server.client.get(path, headers=bob)

    assert {"items": [], "next_cursor": None} == mine.json()
    assert 404 == theirs.status_code


async def test_an_unknown_model_costs_nobody_knows_what(priced):
    job = await priced.submit("test.chat", {"model": "nobody-knows-it"})
    usage = (await priced.ended(job))["usage"]

    assert (None, False, 1) == (
        usage["cost_usd"],
        usage["priced"],
        usage["unpriced_calls"],
    ), "unknown is unknown, not nothing"


async def test_a_job_that_calls_no_model_has_no_usage(server):
    ended = await server.ended(await server.submit())

    assert "usage" not in ended


async def test_the_etag_tells_usage_too(priced):
    job = await priced.submit("test.chat")
    await priced.ended(job)
    first = await priced.client.get(job["links"]["self"])
    row = await priced.backburner.engine.find(job["id"])
    same = await priced.client.get(
        job["links"]["self"], headers={"If-None-Match": first.headers["etag"]}
    )

    assert 304 == same.status_code
    assert f'"{row.events}-1-t"' == first.headers["etag"]


@BOTH
@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("model", ["fake-1", "other"]),
        ("capability", ["test.chat"]),
        ("user", ["1"]),
        ("tag", ["both", "one"]),
    ],
)
async def test_usage_is_added_up(priced, by, keys):
    jobs = [
        await priced.submit("test.chat", {"calls": 2}, tags=["one", "both"]),
        await priced.submit("test.chat", {"model": "other"}, tags=["both"]),
    ]
    for job in jobs:
        await priced.ended(job)

    told = (await priced.client.get("/v1/usage", params={"by": by})).json()

    assert keys == [item["key"] for item in told["items"]]
    assert (2, 3, None, "0.003200", 1) == (
        told["total"]["jobs"],
        told["total"]["calls"],
        told["total"]["cost_usd"],
        told["total"]["priced_cost_usd"],
        told["total"]["unpriced_calls"],
    )
    assert not told["more"]


async def test_usage_by_day_is_todays(priced):
    await priced.ended(await priced.submit("test.chat"))

    told = (await priced.client.get("/v1/usage", params={"by": "day"})).json()
    later = {"by": "day", "since": "2100-01-01T00:00:00Z"}
    none = (await priced.client.get("/v1/usage", params=later)).json()

    assert [10] == [len(item["key"]) for item in told["items"]]
    assert ([], 0) == (none["items"], none["total"]["calls"])


async def test_users_see_their_own_usage_and_operators_everybodys(serve, provider):
    server = await serve(
        keyed=True, capabilities=[chatting(provider)], webhooks={"prices": PRICES}
    )
    ann = await server.key("acme", "jobs:read", "jobs:write", user="ann")
    bob = await server.key("acme", "jobs:read", "jobs:write", user="bob")
    chief = await server.key("acme", "jobs:read", "usage:read", ACT)
    other = await server.key("other", "jobs:read", "usage:read")
    for key in (ann, bob):
        asked = {"capability": "test.chat", "input": {}}
        prefer = server.shown(key, Prefer="wait=10")
        done = await server.client.post("/v1/jobs", json=asked, headers=prefer)
        assert 200 == done.status_code

    async def usage(key, **params):
        headers = server.shown(key)
        return await server.client.get("/v1/usage", params=params, headers=headers)

    mine = (await usage(ann, by="user")).json()
    refused = await usage(ann, everyone=True)
    all_of_them = (await usage(chief, by="user", everyone=True)).json()
    strangers = (await usage(other, by="user", everyone=True)).json()

    assert ["ann"] == [item["key"] for item in mine["items"]]
    assert 403 == refused.status_code
    assert ["ann", "bob"] == sorted(item["key"] for item in all_of_them["items"])
    assert [] == strangers["items"]


@pytest.mark.parametrize(
    "params",
    [
        {"by": "input"},
        {"by": "model' OR 1=1 --"},
        {"since": "yesterday"},
        {"limit": 0},
        {"limit": 10**9},
        {"nonsense": 1},
    ],
)
async def test_a_question_about_usage_that_makes_no_sense_is_refused(server, params):
    response = await server.client.get("/v1/usage", params=params)

    assert 422 == response.status_code


@BOTH
async def test_a_quote_tells_what_a_job_would_take(priced):
    asked = {"capability": "test.chat", "input": {"calls": 3}}
    before = (await priced.client.post("/v1/quote", json=asked)).json()
    for _ in range(3):
        await priced.ended(await priced.submit("test.chat"))
    after = (await priced.client.post("/v1/quote", json=asked)).json()

    assert (2_700, "estimate", "0.027000", True, "house-7") == (
        before["tokens"],
        before["tokens_basis"],
        before["cost_usd"],
        before["priced"],
        before["price_version"],
    ), "the estimate, at the price of the dearest kind of token"
    assert (0, None) == (before["samples"], before["finish"]), "nothing ran yet"
    assert (3, 0) == (after["samples"], after["jobs_ahead"])
    assert after["start"]["p50"] <= after["start"]["p90"] <= after["finish"]["p90"]
    assert after["finish"]["p50"] <= after["finish"]["p90"]
    assert after["budget"] is None


async def test_a_quote_stores_nothing(priced):
    asked = {"capability": "test.chat", "input": {}}
    await priced.client.post("/v1/quote", json=asked)

    assert [] == (await priced.client.get("/v1/jobs")).json()["items"]


async def test_an_estimate_is_not_above_what_the_model_can_take(priced):
    asked = {"capability": "test.chat", "input": {"calls": 10**6}}
    quote = (await priced.client.post("/v1/quote", json=asked)).json()

    assert (5_000, "0.050000") == (quote["tokens"], quote["cost_usd"])


async def test_a_quote_without_an_estimate_goes_by_what_jobs_used(serve, provider):
    @capability("test.plain", queue="demo")
    async def plain(ctx: Context, asked: Chat) -> None:
        for _ in range(asked.calls):
            ctx.used("fake-1", **await provider.ask("fake-1"))

    server = await serve(capabilities=[plain], webhooks={"prices": PRICES})
    asked = {"capability": "test.plain", "input": {}}
    before = (await server.client.post("/v1/quote", json=asked)).json()
    await server.ended(await server.submit("test.plain", {"calls": 2}))
    after = (await server.client.post("/v1/quote", json=asked)).json()

    assert (None, None, None) == (
        before["tokens"],
        before["tokens_basis"],
        before["cost_usd"],
    )
    used = provider.input_tokens + provider.output_tokens
    assert (used, "history", "0.003200") == (
        after["tokens"],
        after["tokens_basis"],
        after["cost_usd"],
    )


@BOTH
async def test_a_quote_names_the_budget_that_binds(priced):
    budgets = [
        Budget("user", tokens=10_000, per=timedelta(hours=1)),
        Budget("tenant", tokens=1_000_000, per=timedelta(hours=1)),
    ]
    for budget in budgets:
        await priced.backburner.engine.budgets.put(budget)

    def asked(calls):
        return {"capability": "test.chat", "input": {"calls": calls}}

    fits = (await priced.client.post("/v1/quote", json=asked(2))).json()["budget"]
    await priced.backburner.engine.budgets.put(
        Budget("user", tokens=1_000, per=timedelta(hours=1))
    )
    over = (await priced.client.post("/v1/quote", json=asked(2))).json()["budget"]

    assert ("user", 10_000, 8_200, True) == (
        fits["scope"],
        fits["limit"],
        fits["left_after"],
        fits["admits"],
    )
    assert (1_000, 0, False) == (over["limit"], over["left_after"], over["admits"])


async def test_a_paused_queue_has_no_start(priced):
    await priced.ended(await priced.submit("test.chat"))
    await priced.client.post("/v1/queues/demo/pause")
    asked = {"capability": "test.chat", "input": {}}
    quote = (await priced.client.post("/v1/quote", json=asked)).json()

    assert (True, None, None) == (quote["paused"], quote["start"], quote["finish"])


async def test_nobody_can_tell_when_nobody_works(serve, provider):
    server = await serve(works=False, capabilities=[chatting(provider)])
    asked = {"capability": "test.chat", "input": {}}
    quote = (await server.client.post("/v1/quote", json=asked)).json()

    assert (0, None, None) == (quote["slots"], quote["start"], quote["finish"])


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"capability": "no.such", "input": {}}, 404),
        ({"capability": "test.chat", "input": {"calls": "many"}}, 422),
        ({"capability": "test.chat", "input": {}, "priority": 99}, 422),
        ({"capability": "test.chat"}, 422),
    ],
)
async def test_a_quote_refuses_what_a_submit_refuses(priced, asked, status):
    quoted = await priced.client.post("/v1/quote", json=asked)
    submitted = await priced.client.post("/v1/jobs", json=asked)

    assert status == quoted.status_code == submitted.status_code
    assert submitted.json()["code"] == quoted.json()["code"]


@BOTH
async def test_a_cancel_answers_with_a_receipt_that_the_provider_bears_out(
    serve, provider
):
    waiting = asyncio.Event()
    server = await serve(
        capabilities=[chatting(provider, waiting)], webhooks={"prices": PRICES}
    )
    hourly = Budget("user", tokens=100_000, per=timedelta(hours=1))
    await server.backburner.engine.budgets.put(hourly)
    job = await server.submit("test.chat", {"calls": 3, "then_wait": True})
    await waiting.wait()
    await _until_told(server, job, calls=3)
    await _until_said(server, job, "word word word ")

    first = (await server.client.post(job["links"]["cancel"])).json()
    again = (await server.client.post(job["links"]["cancel"])).json()
    [account] = (await server.client.get("/v1/budgets")).json()["items"]

    used = provider.input_tokens + provider.output_tokens
    assert "cancelled" == first["state"]
    assert {
        "tokens_used": used,
        "cost_usd": "0.004800",
        "priced": True,
        "hold_released": {"tokens": 2_700 - used, "cost_usd": None},
        "text_delivered": 15,
        "not_undone": first["receipt"]["not_undone"],
    } == first["receipt"]
    assert [("calls", 3), ("text", 15), ("runs", 1)] == [
        (left["kind"], left["count"]) for left in first["receipt"]["not_undone"]
    ]
    assert first["receipt"] == again["receipt"], "a receipt does not change"
    assert (0, used) == (account["held"], account["settled"])


async def test_a_call_that_ends_after_the_cancel_is_booked_late(serve):
    begun, release = asyncio.Event(), asyncio.Event()

    @capability("test.stubborn", queue="demo")
    async def stubborn(ctx: Context, _asked: Chat) -> None:
        begun.set()
        try:
            await release.wait()
        except asyncio.CancelledError:
            # The provider has done it by now, and will be paid.
            ctx.used("fake-1", input_tokens=7, output_tokens=3)
            raise

    server = await serve(capabilities=[stubborn], webhooks={"prices": PRICES})
    job = await server.submit("test.stubborn", {})
    await begun.wait()
    receipt = (await server.client.post(job["links"]["cancel"])).json()["receipt"]
    seen = await _until_told(server, job, calls=1)
    again = (await server.client.post(job["links"]["cancel"])).json()

    assert 0 == receipt["tokens_used"]
    assert (10, 1) == (
        seen["usage"]["input_tokens"] + seen["usage"]["output_tokens"],
        seen["usage"]["late_calls"],
    )
    assert receipt == again["receipt"]


async def test_a_job_that_never_ran_leaves_nothing_behind(serve):
    server = await serve(works=False)
    job = await server.submit()
    receipt = (await server.client.post(job["links"]["cancel"])).json()["receipt"]

    assert {
        "tokens_used": 0,
        "cost_usd": "0.000000",
        "priced": True,
        "hold_released": None,
        "text_delivered": 0,
        "not_undone": [],
    } == receipt


@pytest.mark.parametrize("count", [-1, 10**13, math.nan, 1.5])
async def test_a_count_that_is_none_fails_the_attempt_and_books_nothing(serve, count):
    @capability("test.wrong", queue="demo", max_attempts=1)
    async def wrong(ctx: Context, _asked: Chat) -> None:
        ctx.used("m" * 10_000, input_tokens=1, output_tokens=1)
        ctx.used("m", input_tokens=count, output_tokens=1)

    server = await serve(capabilities=[wrong])
    ended = await server.ended(await server.submit("test.wrong", {}))

    assert "failed" == ended["state"]
    assert (1, [200]) == (
        ended["usage"]["calls"],
        [len(model) for model in ended["usage"]["models"]],
    ), "what was counted well is paid for"


async def _until_said(server, job, words):
    engine, text = server.backburner.engine, Text()
    async with (
        asyncio.timeout(60),
        aclosing(engine.events(await engine.find(job["id"]))) as events,
    ):
        async for event in events:
            text.take(event.n, event.type, event.data)
            if str(text) == words:
                return


async def _until_told(server, job, *, calls):
    async with asyncio.timeout(60):
        while True:
            seen = (await server.client.get(job["links"]["self"])).json()
            if seen.get("usage", {}).get("calls") == calls:
                return seen
            await pause()
