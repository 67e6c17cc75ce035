"""What must be set, what may be, and what a process without a bot does."""

import asyncio

import pytest
from typer.testing import CliRunner

from backburner import Setup
from backburner.domain.errors import ConfigurationError
from backburner.settings import Settings, read_settings
from backburner.startup import problems, read_apps
from backburner_apps.inbox import app
from backburner_apps.inbox.cli import commands
from backburner_apps.inbox.settings import InboxSettings
from tests.apps.inbox.conftest import written
from tests.apps.inbox.fake_bot import serving

BOT = {"telegram_bot_token": "1:a"}
SIGNED = {"telegram_webhook_secret": "s"}
TEXT = {"ai_text": ("mock",)}


@pytest.mark.parametrize(
    ("setup", "ours", "settings", "named"),
    [
        (Setup(), {}, TEXT, ["TELEGRAM_BOT_TOKEN"]),
        (Setup(), BOT, TEXT, []),
        (Setup(), BOT, {}, ["BACKBURNER_AI"]),
        (Setup(), BOT, {"ai_text": ("deepseek",)}, ["DEEPSEEK_API_KEY"]),
        (Setup(), BOT, {**TEXT, "ai_audio": ("gemini",)}, []),
        (Setup(frozenset({"inbox"})), BOT, TEXT, ["TELEGRAM_WEBHOOK_SECRET"]),
        (Setup(frozenset({"inbox"}), works=False), SIGNED, TEXT, []),
        (Setup(frozenset({"inbox"})), {**BOT, **SIGNED}, TEXT, []),
        (Setup(frozenset({"inbox"}), is_dev=True), {}, TEXT, []),
    ],
)
def test_every_missing_setting_is_named(setup, ours, settings, named, monkeypatch):
    for name in ("DEEPSEEK_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    own = read_apps([app], [InboxSettings(**ours)])
    found = problems(Settings(**settings), [app], setup, own)

    assert named == [sentence.split()[0] for sentence in found]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TELEGRAM_WEBHOOK_SECRET", "no spaces"),
        ("TELEGRAM_WEBHOOK_SECRET", "s" * 257),
        ("TELEGRAM_BOT_TOKEN", "1/../../other"),
        ("TELEGRAM_API_BASE_URL", "telegram"),
        ("AI_TIMEOUT_MS", "soon"),
        ("BACKBURNER_INBOX_TIMEZONE", "Nowhere"),
        ("BACKBURNER_INBOX_PARSE_MODE", "MarkdownV2"),
    ],
)
def test_a_wrong_value_names_its_setting_and_shows_no_secret(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError, match=f"^{name}: ") as raised:
        read_settings(InboxSettings)
    if "TOKEN" in name or "SECRET" in name:
        assert value not in str(raised.value)


async def test_without_a_bot_replies_are_shown_here(start):
    inbox = await start(telegram_bot_token="", telegram_webhook_secret="")
    assert 200 == (await inbox.post(written("Buy milk"), secret=None)).status_code
    await inbox.rest()
    [reply] = (await inbox.client.get("/inbox/outbox")).json()["items"]

    assert (7, "HTML") == (reply["chatId"], reply["parseMode"])
    assert "✅ Task created\n\n1. <b>Buy milk</b>" == reply["text"]
    assert [] == inbox.bot.calls


async def test_with_a_bot_there_is_no_outbox_and_others_see_only_theirs(start):
    inbox = await start(works=False)
    keyed = await start(works=False, keyed=True, telegram_bot_token="")

    assert 404 == (await inbox.client.get("/inbox/outbox")).status_code
    assert 401 == (await keyed.client.get("/inbox/outbox")).status_code


async def test_a_webhook_that_is_not_set_is_one_line_without_the_token(monkeypatch):
    async def refuse(_path, _body):
        return 401, b'{"ok": false, "description": "Unauthorized"}'

    async with serving(refuse) as url:
        for variables, told in (
            ({}, "TELEGRAM_BOT_TOKEN is not set"),
            ({"TELEGRAM_BOT_TOKEN": "1:a-token"}, "TELEGRAM_WEBHOOK_SECRET is not set"),
            ({"TELEGRAM_WEBHOOK_SECRET": "s"}, "TELEGRAM_API_BASE_URL"),
            ({"TELEGRAM_API_BASE_URL": url}, "refused the webhook: Unauthorized"),
        ):
            monkeypatch.setenv("TELEGRAM_API_BASE_URL", "http://127.0.0.1:1")
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            done = await asyncio.to_thread(
                CliRunner().invoke, commands, ["set-webhook", "https://a.example"]
            )

            assert told in str(done.exception)
            assert "a-token" not in str(done.exception)
