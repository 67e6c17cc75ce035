"""The endpoint that Discord calls: who is answered, what, and what is stored."""

import asyncio
import json
import sys
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from backburner import Backburner, ConfigurationError, Context, capability
from backburner.domain.jobs.job import JobState
from backburner_apps.chat import discord as discord_package
from backburner_apps.chat.discord import application, attachments, routes
from backburner_apps.chat.discord.routes import PATH
from tests.apps.chat.discord.conftest import DEFERRED, TENANT, told
from tests.apps.chat.discord.fake import PATIENCE
from tests.apps.chat.discord.payloads import (
    IMAGE,
    PING,
    PUBLIC_KEY,
    USER,
    a_command,
    signed,
)

ONE = pytest.mark.one_store
"""Of tests that any store is good for."""
ASKED = {"personality": "fox", "message": "hi"}


@ONE
async def test_a_ping_is_answered_with_a_pong(start):
    bot = await start(works=False)
    answer = await bot.send(PING)
    assert (200, {"type": 1}) == (answer.status_code, answer.json())


SPOILT = (
    {"X_Signature_Ed25519": "0" * 128},
    {"X_Signature_Ed25519": "no signature"},
    {"X_Signature_Timestamp": "1700000000"},
    {"X_Signature_Timestamp": ""},
)
REFUSED = (401, "INVALID_SIGNATURE")


@ONE
async def test_a_request_that_is_not_signed_by_discord_is_refused(start):
    bot = await start(works=False)
    answers = [await bot.send(a_command(1, **ASKED), **spoilt) for spoilt in SPOILT]
    assert [REFUSED] * 4 == [(a.status_code, a.json()["code"]) for a in answers]
    assert [] == await bot.jobs("llm-generation")


@ONE
async def test_a_stale_request_is_refused_although_its_signature_is_good(start):
    bot = await start(works=False)
    now = bot.backburner.engine.now() // 1000
    stale = [await bot.send(PING, at=now + seconds) for seconds in (-301, 400)]
    fresh = [await bot.send(PING, at=now + seconds) for seconds in (-200, 200)]
    assert [REFUSED] * 2 == [(a.status_code, a.json()["code"]) for a in stale]
    assert [200, 200] == [answer.status_code for answer in fresh]


INVALID = (
    b"",
    b"no json",
    b"[]",
    {"type": 3},
    {**PING, "type": 9},
    {**a_command(1, **ASKED), "token": "../../users/@me"},
    {**a_command(1, **ASKED), "id": "x"},
    {**a_command(1, **ASKED), "application_id": "7"},
    {**a_command(1, **ASKED), "data": None},
)


@ONE
async def test_a_signed_request_that_is_no_interaction_is_refused(start):
    bot = await start(works=False)
    answers = [await bot.send(payload) for payload in INVALID]
    assert [400] * len(INVALID) == [answer.status_code for answer in answers]
    assert [] == await bot.jobs("llm-generation")


@ONE
async def test_a_body_that_is_too_large_is_refused(start):
    bot = await start(works=False)
    answer = await bot.send(b" " * 300_000)
    assert 413 == answer.status_code


async def test_a_command_is_deferred_and_its_job_is_stored_by_then(start):
    bot = await start(works=False)
    answer = await bot.send(a_command(7, attachment=IMAGE, **ASKED))
    [job] = await bot.jobs("llm-generation")
    [image] = await bot.jobs("image-description")

    assert (200, DEFERRED) == (answer.status_code, answer.json())
    assert (TENANT, f"discord:{USER}") == (job.owner.tenant, job.owner.user)
    assert ("llm-discord-7",) == job.tags
    assert JobState.BLOCKED == job.state
    fourteen_minutes = 14 * 60_000
    assert 0 <= fourteen_minutes - (job.deadline - job.created_at) < 10_000
    fetch = json.loads(image.input)
    assert [*attachments.HOSTS] == fetch["hosts"]
    assert IMAGE["url"] == fetch["attachment"]["url"]


@ONE
async def test_no_job_shows_the_token(start):
    bot = await start(works=False)
    token = await bot.give(a_command(7, **ASKED))
    texts = [
        job.input
        for name in ("llm-generation", "chat.discord-draft")
        for job in await bot.jobs(name)
    ]
    assert 2 == len(texts)
    assert not [text for text in texts if token in text]
    assert token not in bot.chat.log.getvalue()


@ONE
async def test_the_same_interaction_again_is_answered_alike_and_stored_once(start):
    bot = await start(works=False)
    body, headers = signed(a_command(1, **ASKED), bot.backburner.engine.now() // 1000)
    answers = await asyncio.gather(
        *(
            bot.chat.client.post("/discord/interactions", content=body, headers=headers)
            for _ in range(10)
        )
    )
    assert [DEFERRED] * 10 == [answer.json() for answer in answers]
    assert 1 == len(await bot.jobs("llm-generation"))
    assert 1 == len(await bot.jobs("chat.discord-draft"))


@ONE
async def test_a_personality_is_named_by_its_id_or_name(start):
    bot = await start(works=False)
    for number, named in enumerate(("fox", "Red Fox", "red fox"), 1):
        await bot.give(a_command(number, personality=named, message="hi"))
    jobs = await bot.jobs("llm-generation")
    asked = [json.loads(job.input)["request"] for job in jobs]
    assert ["fox"] * 3 == [request["personalityId"] for request in asked]


@ONE
async def test_an_unknown_personality_is_told_to_the_user_and_nothing_is_queued(start):
    bot = await start(works=False)
    answer = await bot.send(a_command(1, personality="wolf", message="hi"))
    assert "❌ There is no such personality. Try: `Red Fox`" == told(answer)
    assert [] == await bot.jobs("llm-generation")
    assert [] == await bot.jobs("chat.discord-draft")


ELSEWHERE = (
    "http://127.0.0.1/cat.png",
    "https://169.254.169.254/latest/meta-data",
    "https://[::1]/cat.png",
    "https://10.0.0.7/cat.png",
    "http://cdn.discordapp.com/cat.png",
    "https://cdn.discordapp.com:8443/cat.png",
    "https://cdn.discordapp.com.example.org/cat.png",
    "https://cdn.discordapp.com@127.0.0.1/cat.png",
    "https://user@cdn.discordapp.com/cat.png",
    "https://example.org/?https://cdn.discordapp.com/",
    "https://[cdn.discordapp.com/",
    "file:///etc/passwd",
    "",
)


@ONE
async def test_only_files_on_discords_own_hosts_are_taken(start):
    bot = await start(works=False)
    for number, url in enumerate(ELSEWHERE, 1):
        picture = {**IMAGE, "url": url}
        answer = await bot.send(a_command(number, attachment=picture, **ASKED))
        assert "Only files that were uploaded to Discord" in told(answer), url
    assert [] == await bot.jobs("image-description")


@ONE
async def test_an_attachment_of_100_mb_is_refused(start):
    bot = await start(works=False)
    picture = {**IMAGE, "size": 100_000_000}
    answer = await bot.send(a_command(1, attachment=picture, **ASKED))
    assert "too large: at most 25 MB" in told(answer)
    assert [] == await bot.jobs("image-description")


@ONE
async def test_a_message_that_cannot_be_used_is_told_to_the_user(start):
    bot = await start(works=False)
    for number, message in enumerate(("", "   ", "x" * 40_000), 1):
        answer = await bot.send(a_command(number, personality="fox", message=message))
        assert "Write a message" in told(answer)
    assert [] == await bot.jobs("llm-generation")


@ONE
async def test_an_unknown_command_is_told_to_the_user(start):
    bot = await start(works=False)
    assert "not known" in told(await bot.send(a_command(1, name="dance")))


@ONE
async def test_a_user_who_asks_too_often_is_told_and_others_are_not(start):
    bot = await start(works=False, user_requests=1)
    await bot.give(a_command(1, **ASKED))
    answer = await bot.send(a_command(2, **ASKED))
    assert "very often" in told(answer)
    await bot.give(a_command(3, user="77", **ASKED))
    assert 2 == len(await bot.jobs("chat.discord-draft"))


def needs(**settings):
    """Have the routes made with some settings."""
    chosen = {"discord_public_key": PUBLIC_KEY, "discord_application_id": "1"}
    backburner = SimpleNamespace(settings_of=lambda model: model(**chosen | settings))
    return application.routes(backburner)


def test_what_the_endpoint_needs_is_told_at_the_start(monkeypatch):
    assert [PATH] == [route.path for route in needs()]
    with pytest.raises(ConfigurationError, match="DISCORD_APPLICATION_ID is not set"):
        needs(discord_application_id="")
    with pytest.raises(ValidationError, match="64 hexadecimal digits"):
        needs(discord_public_key="my key")
    monkeypatch.delitem(sys.modules, routes.__name__)
    monkeypatch.delattr(discord_package, "routes")
    monkeypatch.setitem(sys.modules, "backburner_apps.chat.discord.signature", None)
    with pytest.raises(ConfigurationError, match=r"pip install .backburner\[discord\]"):
        needs()


@ONE
async def test_without_a_public_key_there_is_no_endpoint(start):
    bot = await start(works=False, discord_public_key="")
    assert 404 == (await bot.send(PING)).status_code


async def test_commands_are_deferred_while_200_jobs_run(start):
    running, all_run, release = [], asyncio.Event(), asyncio.Event()

    @capability("busy")
    async def busy(_ctx: Context, number: int) -> int:
        running.append(number)
        if len(running) == 200:
            all_run.set()
        await release.wait()
        return number

    bot = await start(works=False)
    settings = bot.backburner.settings.model_copy(update={"slots": 300})
    async with Backburner(settings, capabilities=[busy]) as other:
        await other.start_worker()
        tickets = await other.submit_many(busy, [*range(200)])
        async with asyncio.timeout(PATIENCE):
            await all_run.wait()
        answers = await asyncio.gather(
            *(bot.send(a_command(number, **ASKED)) for number in range(1, 51))
        )
        still = [(await ticket.job()).state for ticket in tickets]
        release.set()
        assert [199, 0] == [await tickets[n].result() for n in (199, 0)]

    assert [JobState.RUNNING] * 200 == still
    assert [DEFERRED] * 50 == [answer.json() for answer in answers]
    assert 50 == len(await bot.jobs("llm-generation"))
