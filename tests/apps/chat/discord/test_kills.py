"""
Workers that are killed around a reply in Discord.

The deferral was answered, so the reply is shown. A message is repeated at most once for
each worker that was killed while it was on its way.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from backburner.domain.jobs.job import JobState
from backburner_apps.chat.discord.replying import APOLOGY
from tests.apps.chat.discord.fake import PATIENCE
from tests.apps.chat.discord.payloads import a_command
from tests.apps.programs import WITH_BROKER, launch

HI = {"personality": "fox", "message": "hi"}
BEAT, LEASE = 0.3, 3.0
LONG = "word " * 900
"""A message whose echo is three messages long."""
NO_DRAFTS = "ai-jobs,discord"
"""The queues of workers that show finished replies only."""


@pytest.fixture
async def workers(store_url, discord, tmp_path):
    """Start workers of `chat` as processes; all are killed at the end."""
    started = []
    settings = {
        "BACKBURNER_STORE": store_url,
        "BACKBURNER_AI": "mock",
        "BACKBURNER_WEBHOOK_ALLOW": "127.0.0.1",
        "BACKBURNER_BEAT_SECONDS": str(BEAT),
        "BACKBURNER_LEASE_SECONDS": str(LEASE),
        "BACKBURNER_POLL_SECONDS": "0.2",
        "BACKBURNER_GRACE_SECONDS": "0",
        "DISCORD_API_BASE_URL": discord.url,
    }

    @asynccontextmanager
    async def start(*, queues="", **changes):
        more = {"BACKBURNER_QUEUES": queues} if queues else {}
        process = await asyncio.to_thread(
            launch,
            tmp_path / f"worker-{len(started)}.log",
            *("worker", "--app", "chat"),
            cwd=WITH_BROKER,
            settings=settings | more | changes,
        )
        started.append(process)
        yield process
        process.kill()
        await asyncio.to_thread(process.wait)

    yield start
    for process in started:
        process.kill()
        process.wait()


async def test_a_worker_killed_after_the_model_answered(start, discord, workers):
    """The next one shows the reply, once."""
    bot = await start(works=False)
    token = await bot.give(a_command(1, **HI))
    [job] = await bot.jobs("llm-generation")
    async with workers(queues="ai-jobs"):
        ended = await bot.backburner.engine.wait(job.id, job.owner, timeout=120)
    assert (JobState.SUCCEEDED, [None]) == (ended.state, discord.shown[token])
    async with workers():
        await discord.shows(token, "Mock answer to: hi")
        await bot.quiet()
    assert ["Mock answer to: hi"] == [call.content for call in discord.of(token)]


async def test_a_worker_killed_while_the_reply_is_on_its_way(start, discord, workers):
    """Discord has it and the worker does not know: it is sent once more."""
    bot = await start(works=False)
    token = await bot.give(a_command(1, **HI))
    hold = discord.hold(after=True)
    async with workers(queues=NO_DRAFTS):
        await hold.reached()
    hold.release.set()
    async with workers():
        await bot.quiet()
    assert ["Mock answer to: hi"] * 2 == [call.content for call in discord.of(token)]
    assert ["Mock answer to: hi"] == discord.shown[token]
    assert JobState.SUCCEEDED == (await bot.jobs("chat.discord-reply"))[0].state


@pytest.mark.one_store
async def test_a_job_that_lost_its_worker_for_good_is_an_apology(
    start, discord, workers
):
    bot = await start(works=False, crash_limit=1)
    message = "[[mock: hang]] hi"
    token = await bot.give(a_command(1, personality="fox", message=message))
    [job] = await bot.jobs("llm-generation")
    async with workers(queues="ai-jobs"):
        async with asyncio.timeout(PATIENCE):
            async for event in bot.backburner.engine.events(job):
                if event.type == "job.started":
                    break
    async with workers(BACKBURNER_CRASH_LIMIT="1"):
        await discord.shows(token, APOLOGY)
        await bot.quiet()
    [job] = await bot.jobs("llm-generation")
    assert (JobState.FAILED, "WORKER_LOST") == (job.state, job.error.code)


@pytest.mark.one_store
async def test_workers_killed_with_each_message_of_a_reply(start, discord, workers):
    """Each message is repeated at most once for the worker that was killed with it."""
    bot = await start(works=False)
    await bot.give(a_command(1, personality="fox", message=LONG))
    kills = 0
    for number in (0, 1):  # a third worker lost with it would end the job
        hold = discord.hold(_is_first_of(discord, number), after=True)
        async with workers(queues=NO_DRAFTS):
            await hold.reached()
        kills += 1
        hold.release.set()
    async with workers():
        await bot.quiet()

    calls = [call for call in discord.calls if call.status == 200]
    contents = list(dict.fromkeys(call.content for call in calls))
    repeats = len(calls) - len(contents)
    assert ["word"] * 900 == " ".join(contents).removeprefix("Mock answer to: ").split()
    assert (3, 2, 2) == (len(contents), kills, repeats)


def _is_first_of(discord, number):
    """Return what matches the first sending of a reply's message."""
    return lambda _call: len({call.content for call in discord.calls}) > number


async def test_a_worker_killed_while_a_draft_is_on_its_way(start, discord, workers):
    """Discord carries the draft out after the reply; the next worker sees to that."""
    bot = await start(
        queues=("ai-jobs", "discord"), beat_seconds=BEAT, lease_seconds=LEASE
    )
    pen = bot.author.pen("hi")
    token = await bot.give(a_command(1, **HI))
    hold = discord.hold(lambda call: call.is_draft)
    pen.put_nowait("Once ")
    async with workers(queues="discord-drafts"):
        await hold.reached()
    pen.put_nowait(None)
    await discord.shows(token, "Once")
    [reply] = await bot.jobs("chat.discord-reply")
    await bot.backburner.engine.wait(reply.id, reply.owner, timeout=120)
    hold.release.set()
    await discord.shows(token, "Once …")
    async with workers(queues="discord-drafts"):
        await discord.shows(token, "Once")
        await bot.quiet()
    assert ["Once", "Once …", "Once"] == [call.content for call in discord.of(token)]
