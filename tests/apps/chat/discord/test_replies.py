"""Replies in Discord: drafts while the model writes, then the reply or an apology."""

import asyncio
from datetime import timedelta

import pytest
import sqlalchemy as sa

from backburner import Owner
from backburner.domain.jobs.job import JobState
from backburner.domain.webhooks.outbound import AllowedHosts
from backburner.ports.egress import Unusable
from backburner_apps.chat import personalities
from backburner_apps.chat.discord import attachments, book, replying, routes
from backburner_apps.chat.discord.replying import APOLOGY, EVERY
from backburner_apps.chat.discord.tables import interactions, turns
from backburner_apps.chat.shapes import MAX_BYTES
from backburner_apps.chat.tables import memories
from tests.apps.chat.discord.conftest import TENANT, bot, told
from tests.apps.chat.discord.fake import PATIENCE
from tests.apps.chat.discord.payloads import CHANNEL, IMAGE, USER, a_command

pytestmark = pytest.mark.usefixtures("hurried")
ONE = pytest.mark.one_store
OWNER = Owner(TENANT, f"discord:{USER}")
HI = {"personality": "fox", "message": "hi"}


def check_final(discord, token, text):
    """Check that a reply was sent once, or again after a draft that met it."""
    finals = [call.content for call in discord.of(token) if not call.is_draft]
    assert [text] * len(finals) == finals
    assert 1 <= len(finals) <= 1 + len(drafts(discord, token))
    assert [text] == discord.shown[token]


def drafts(discord, token):
    return [call for call in discord.of(token) if call.is_draft]


async def the_job(bot, capability="llm-generation"):
    [job] = await bot.jobs(capability)
    return job


async def test_the_reply_is_shown_once_when_the_model_has_answered(start, discord):
    bot = await start()
    token = await bot.give(a_command(1, **HI))
    await discord.shows(token, "Mock answer to: hi")
    await bot.quiet()
    check_final(discord, token, "Mock answer to: hi")
    assert [] == discord.of(token, "follow-up")
    reply = await the_job(bot, "chat.discord-reply")
    assert (JobState.SUCCEEDED, OWNER) == (reply.state, reply.owner)


@ONE
async def test_drafts_are_at_least_two_seconds_apart(start, discord, monkeypatch):
    monkeypatch.setattr(replying, "EVERY", EVERY)
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    pen.put_nowait("Once ")
    await discord.until(lambda: drafts(discord, token))
    pen.put_nowait("upon a time")
    await discord.until(lambda: len(drafts(discord, token)) == 2)
    pen.put_nowait(None)
    await discord.shows(token, "Once upon a time")
    await bot.quiet()

    shown = drafts(discord, token)
    assert ["Once …", "Once upon a time …"] == [call.content for call in shown]
    # It is asked again after Discord's answer, by the clock of the store.
    assert shown[1].at - shown[0].at > EVERY.total_seconds() - 0.1
    check_final(discord, token, "Once upon a time")


@ONE
async def test_a_draft_is_not_sent_again_while_nothing_is_written(start, discord):
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    pen.put_nowait("Once ")
    await discord.until(lambda: drafts(discord, token))
    job = await the_job(bot, "chat.discord-draft")
    runs = 0
    async for event in bot.backburner.engine.events(job):
        runs += event.type == "job.started"
        if runs == 5:
            pen.put_nowait(None)
    assert 1 == len(drafts(discord, token))
    await discord.shows(token, "Once ".strip())


async def test_a_long_reply_goes_on_in_more_messages(start, discord):
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    pen.put_nowait("word " * 1500)
    pen.put_nowait(None)
    await discord.until(lambda: len(discord.shown[token]) == 4)
    await bot.quiet()
    assert ["word"] * 1500 == " ".join(discord.shown[token]).split()
    assert 3 == len(discord.of(token, "follow-up"))


@ONE
async def test_rate_limits_are_waited_for_and_nothing_is_sent_twice(start, discord):
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    discord.refusals.append((429, {"retry_after": 0.3}))
    pen.put_nowait("word " * 3600)
    pen.put_nowait(None)
    await discord.until(lambda: len(discord.shown[token]) == 10)
    await bot.quiet()

    refused = [call for call in discord.calls if call.status == 429]
    reply = await the_job(bot, "chat.discord-reply")
    assert len(refused) >= 2  # ours, and the fake's own after five messages
    assert ["word"] * 3600 == " ".join(discord.shown[token]).split()
    assert 9 == len(discord.of(token, "follow-up"))
    assert (JobState.SUCCEEDED, 1) == (reply.state, reply.attempt)


@ONE
async def test_a_rate_limited_draft_waits_and_the_reply_does_not(start, discord):
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    discord.refusals.append((429, {"retry_after": 3000}))
    pen.put_nowait("Once ")
    await discord.until(lambda: discord.calls)
    pen.put_nowait(None)
    await discord.shows(token, "Once")
    job = await the_job(bot, "chat.discord-draft")
    assert [] == drafts(discord, token)
    assert job.run_at - bot.backburner.engine.now() > 2_000_000


async def test_a_model_that_fails_for_good_is_an_apology(start, discord):
    bot = await start()
    message = "[[mock: 400]] hi"
    token = await bot.give(a_command(1, personality="fox", message=message))
    await discord.shows(token, APOLOGY)
    await bot.quiet()
    check_final(discord, token, APOLOGY)
    assert JobState.FAILED == (await the_job(bot)).state


@ONE
async def test_a_cancelled_job_is_an_apology(start, discord):
    bot = await start()
    bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    async with asyncio.timeout(PATIENCE):
        await bot.author.asked.wait()
    await bot.backburner.engine.cancel((await the_job(bot)).id, OWNER)
    await discord.shows(token, APOLOGY)


async def test_a_job_that_expires_is_an_apology(start, discord, monkeypatch):
    monkeypatch.setattr(routes, "DEADLINE", timedelta(seconds=1))
    bot = await start()
    bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    await discord.shows(token, APOLOGY)
    job = await the_job(bot)
    assert (JobState.FAILED, "EXPIRED") == (job.state, job.error.code)


@ONE
async def test_a_personality_that_is_deleted_meanwhile_is_an_apology(start, discord):
    bot = await start(works=False)
    token = await bot.give(a_command(1, **HI))
    await bot.backburner.transact(lambda tx: personalities.delete(tx, TENANT, "fox"))
    await bot.backburner.start_worker()
    await discord.shows(token, APOLOGY)
    assert "Personality not found: fox" == (await the_job(bot)).error.message


@ONE
async def test_a_retried_job_replaces_the_apology(start, discord):
    bot = await start()
    message = "[[mock: 400 times=1]] hi"
    token = await bot.give(a_command(1, personality="fox", message=message))
    await discord.shows(token, APOLOGY)
    await bot.backburner.engine.retry((await the_job(bot)).id, OWNER)
    await discord.until(lambda: discord.shown[token] != [APOLOGY])
    assert discord.shown[token][0].startswith("Mock answer to:")


@ONE
async def test_a_blank_reply_is_an_apology(start, discord):
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    pen.put_nowait(" \n")
    pen.put_nowait(None)
    await discord.shows(token, APOLOGY)


@ONE
async def test_a_reply_that_discord_takes_no_more_is_a_dead_letter(start):
    bot = await start()
    command = a_command(1, **HI)
    await bot.send(command)  # whose token the fake does not know
    await bot.quiet()
    reply = await the_job(bot, "chat.discord-reply")
    assert (JobState.FAILED, 1) == (reply.state, reply.attempt)
    assert command["token"] not in reply.error.message + reply.input


@ONE
async def test_discord_down_for_a_while_only_delays_the_reply(start, discord):
    bot = await start()
    discord.refuses = lambda call: not call.is_draft
    discord.refusals += [(503, {}), (500, {})]
    token = await bot.give(a_command(1, **HI))
    await discord.shows(token, "Mock answer to: hi")
    await bot.quiet()
    assert 3 == (await the_job(bot, "chat.discord-reply")).attempt


async def meet(bot, discord):
    """Have Discord carry a draft out after the reply, which was sent after it."""
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    hold = discord.hold(lambda call: call.is_draft)
    pen.put_nowait("Once ")
    await hold.reached()
    pen.put_nowait("upon a time")
    pen.put_nowait(None)
    await discord.shows(token, "Once upon a time")
    reply = await the_job(bot, "chat.discord-reply")
    await bot.backburner.engine.wait(reply.id, OWNER, timeout=60)
    hold.release.set()
    await bot.quiet()
    return token


async def test_a_draft_that_is_under_way_does_not_replace_the_reply(start, discord):
    """The reply does not wait for it, and is sent again after it."""
    token = await meet(await start(), discord)
    assert ["Once upon a time"] == discord.shown[token]
    assert ["Once upon a time", "Once …", "Once upon a time"] == [
        call.content for call in discord.of(token)
    ]


@ONE
async def test_control_without_the_second_sending_the_draft_stays(
    start, discord, monkeypatch
):
    monkeypatch.setattr(book, "end_edit", book.settle_edit)
    token = await meet(await start(), discord)
    assert ["Once …"] == discord.shown[token]


@ONE
async def test_a_reply_that_a_draft_passes_is_sent_again(start, discord):
    """The draft ends while the reply is on its way: whoever is last sends it again."""
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    draft = discord.hold(lambda call: call.is_draft)
    reply = discord.hold(lambda call: not call.is_draft, after=True)
    pen.put_nowait("Once ")
    await draft.reached()
    pen.put_nowait(None)
    await reply.reached()  # Discord has carried it out, and not answered yet
    draft.release.set()
    follow = await the_job(bot, "chat.discord-draft")
    await bot.backburner.engine.wait(follow.id, OWNER, timeout=60)
    reply.release.set()
    await bot.quiet()

    assert ["Once", "Once …", "Once"] == [call.content for call in discord.of(token)]
    assert ["Once"] == discord.shown[token]


async def test_the_last_20_messages_of_a_channel_are_the_history(start, discord):
    bot = await start()
    for number in range(1, 13):
        command = a_command(number, personality="fox", message=f"m{number}")
        token = await bot.give(command)
        await discord.shows(token, f"Mock answer to: m{number}")
    elsewhere = a_command(99, personality="fox", message="elsewhere")
    elsewhere["channel_id"] = "5"
    await discord.shows(await bot.give(elsewhere), "Mock answer to: elsewhere")

    asked = [
        [message.text for message in chat.messages if message.role != "system"]
        for chat in bot.author.chats
    ]
    assert ["m1"] == asked[0]
    assert ["m1", "Mock answer to: m1", "m2"] == asked[1]
    assert ["Mock answer to: m1", "m2"] != asked[11][:2]
    assert ["m2", "Mock answer to: m2"] == asked[11][:2]
    assert 21 == len(asked[11])
    assert ["elsewhere"] == asked[12]
    kept = await bot.chat.rows(turns)
    assert 20 == len([row for row in kept if row.channel == CHANNEL])


async def test_a_long_or_odd_reply_does_not_spoil_the_history(start, discord):
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    pen.put_nowait("\0" + "word " * 8_000)
    pen.put_nowait(None)
    await discord.until(lambda: len(discord.shown[token]) == 10)
    again = a_command(2, personality="fox", message="again")
    await discord.shows(await bot.give(again), "Mock answer to: again")
    history = bot.author.chats[-1].messages[1:-1]
    assert [2, 6_000] == [len(message.text) for message in history]


@ONE
async def test_an_attachment_that_is_larger_than_it_said_is_not_read(start, discord):
    """What the reply says of it comes from the model, which is told."""
    bot = await start()
    cdn = Cdn(bot.backburner)
    picture = {**IMAGE, "size": 10}
    token = await bot.give(a_command(1, attachment=picture, **HI))
    await discord.until(lambda: discord.shown[token] != [None])

    [request] = cdn.requests
    assert (MAX_BYTES, AllowedHosts.read(attachments.HOSTS)) == (
        request.limit,
        request.hosts,
    )
    assert "could not be read" in bot.author.chats[0].messages[-1].text
    assert "could not be read" in discord.shown[token][0]


class Cdn:
    """Discord's file server, with a file of 100 MB; the rest goes the usual way."""

    def __init__(self, backburner):
        http = backburner._parts.outbound()
        self._usual, http._fetcher = http._fetcher, self
        self.requests = []

    async def fetch(self, request):
        if not request.url.startswith("https://cdn.discordapp.com/"):
            return await self._usual.fetch(request)
        self.requests.append(request)
        return Unusable.TOO_LARGE


@ONE
async def test_forget_deletes_memories_and_turns_of_the_user_only(start, discord):
    bot = await start()
    for number, user in ((1, USER), (2, "77")):
        token = await bot.give(a_command(number, user=user, **HI))
        await discord.shows(token, "Mock answer to: hi")
    await bot.quiet()
    answer = await bot.send(a_command(3, name="forget", personality="fox"))

    assert "Red Fox has forgotten what you said." == told(answer)
    for table in (turns, memories):
        users = {row.user for row in await bot.chat.rows(table)}
        assert {"discord:77"} == users


async def test_a_reply_that_is_being_written_is_forgotten_too(start, discord):
    bot = await start()
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    pen.put_nowait("Once ")
    await discord.until(lambda: drafts(discord, token))
    told(await bot.send(a_command(2, name="forget", personality="fox")))
    pen.put_nowait(None)
    await discord.shows(token, "Once")
    await bot.quiet()
    for table in (turns, memories):
        assert [] == await bot.chat.rows(table)

    again = a_command(3, personality="fox", message="again")
    await discord.shows(await bot.give(again), "Mock answer to: again")
    asked = bot.author.chats[-1].messages
    assert ["again"] == [each.text for each in asked if each.role != "system"]
    assert 2 == len(await bot.chat.rows(turns))


def remember(tx):
    book.add_turns(tx, "1", "a reply", 1)


def forget(tx):
    book.forget(tx, OWNER)


@pytest.mark.parametrize(
    "bodies",
    [(remember, forget), (forget, remember)],
    ids=["reply-first", "forget-first"],
)
async def test_forget_and_a_reply_wait_for_each_other(
    migrated_url, discord, halt, bodies
):
    async with bot(migrated_url, discord, works=False) as running:
        await running.give(a_command(1, **HI))
        first, second = bodies
        transact = running.backburner.transact
        await halt.cross(running.chat, transact(halt.after(first)), transact(second))
        assert [] == await running.chat.rows(turns)


@ONE
async def test_a_user_can_be_erased(start, discord):
    bot = await start()
    for number, user in ((1, USER), (2, "77")):
        token = await bot.give(a_command(number, user=user, **HI))
        await discord.shows(token, "Mock answer to: hi")
    await bot.quiet()
    erase = bot.backburner._given.apps[0].erase
    while await bot.backburner.transact(lambda tx: erase(tx, OWNER, 2)):
        pass
    for table in (interactions, turns):
        assert {"discord:77"} == {row.user for row in await bot.chat.rows(table)}


@ONE
async def test_old_interactions_are_deleted(start, discord):
    bot = await start()
    token = await bot.give(a_command(1, **HI))
    await discord.shows(token, "Mock answer to: hi")
    await bot.quiet()
    old = sa.update(interactions).values(created_at=1)
    await bot.backburner.transact(lambda tx: tx.connection.execute(old))
    deleted = await bot.backburner.transact(lambda tx: book.clean(tx, 10))
    assert (1, []) == (deleted, await bot.chat.rows(interactions))
