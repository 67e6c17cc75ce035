"""Against a Bot API that nobody here wrote: npm's telegram-test-api."""

import asyncio

import httpx2
import orjson
import pytest
import telegram as types
from typer.testing import CliRunner

from backburner.testing.broker.acts import pause
from backburner_apps.inbox.cli import commands
from tests.apps.inbox.conftest import HEADER, PATH, SECRET
from tests.apps.inbox.fake_bot import serving

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
USERS = [
    types.User(100 + n, f"User {n}", is_bot=False, language_code="en") for n in range(5)
]


def relay(inbox):
    """Return what passes updates on, with the secret and a date in seconds."""

    async def passed(path, body):
        update = orjson.loads(body)
        update["message"]["date"] //= 1000
        read = types.Update.de_json(update, None)
        assert read.message.from_user.id == read.effective_chat.id
        async with httpx2.AsyncClient(base_url=inbox.url, trust_env=False) as client:
            answer = await client.post(path, json=update, headers={HEADER: SECRET})
        return answer.status_code, answer.content

    return passed


async def replies_of(telegram, token, user, count):
    found = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await asyncio.to_thread(telegram.replies, token, user.id)
            await pause()
    return [reply["text"] for reply in found]


@BOTH
async def test_a_message_there_becomes_tasks_here_and_a_reply_there(
    start, telegram, monkeypatch, tmp_path
):
    token = f"1:{tmp_path.name.replace('[', '').replace(']', '')}"
    inbox = await start(telegram_bot_token=token, telegram_api_base_url=telegram.url)
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", token)
    monkeypatch.setenv("TELEGRAM_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("TELEGRAM_API_BASE_URL", telegram.url)
    async with serving(relay(inbox)) as url:
        done = await asyncio.to_thread(
            CliRunner().invoke, commands, ["set-webhook", url]
        )
        assert f"Telegram posts updates to {url}{PATH}\n" == done.stdout
        for user in USERS:
            text = f"Buy {user.id} eggs tomorrow: white, brown"
            await asyncio.to_thread(telegram.say, token, user.to_dict(), text)
        found = [await replies_of(telegram, token, user, 1) for user in USERS]
        await asyncio.to_thread(telegram.say, token, USERS[0].to_dict(), "/tasks")
        [listed] = await replies_of(telegram, token, USERS[0], 1)
    tasks = await inbox.tasks()

    assert [f"Buy {user.id} eggs" for user in USERS] == sorted(t.title for t in tasks)
    for user, [reply] in zip(USERS, found, strict=True):
        assert reply.startswith(f"✅ Task created\n\n1. <b>Buy {user.id} eggs</b> ⏰ ")
        assert reply.endswith("• White\n• Brown")
    assert listed.startswith("📋 Open tasks\n\n1. <b>Buy 100 eggs</b>")
