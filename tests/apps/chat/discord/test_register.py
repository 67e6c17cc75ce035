"""`backburner chat register`: Discord is told of the commands, or the user why not."""

import asyncio
import os
import sys

import pytest
from typer.testing import CliRunner

from backburner import ConfigurationError
from backburner_apps.chat.discord.cli import commands
from backburner_apps.chat.discord.commands import COMMANDS
from tests import warm
from tests.apps.chat.discord.fake import BOT
from tests.apps.chat.discord.payloads import APPLICATION, GUILD

SECONDS = 120
PLACE = f"/api/v10/applications/{APPLICATION}"
TOKEN = BOT.removeprefix("Bot ")
DONE = "Registered: /chat, /forget"


@pytest.fixture
def register(discord):
    """Run the command in this process; return its exit code and what it wrote."""

    async def run(*words, **changes):
        env = settings(discord) | changes
        ran = await asyncio.to_thread(
            CliRunner().invoke, commands, ["register", *words], env=env
        )
        assert TOKEN not in ran.output
        if isinstance(ran.exception, ConfigurationError):
            return 2, str(ran.exception)
        return ran.exit_code, ran.output.strip()

    return run


def settings(discord):
    return {
        "DISCORD_APPLICATION_ID": APPLICATION,
        "DISCORD_BOT_TOKEN": TOKEN,
        "DISCORD_API_BASE_URL": discord.url,
    }


async def test_it_is_a_command_of_the_program(discord):
    ran = await asyncio.to_thread(
        warm.run,
        [sys.executable, "-m", "backburner", "chat", "register"],
        env={**os.environ, **settings(discord)},  # noqa: TID251 - of this process
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert DONE == ran.stdout.strip()
    assert [(f"{PLACE}/commands", COMMANDS)] == discord.commands


async def test_the_commands_can_be_those_of_one_server(discord, register):
    assert (0, DONE) == await register("--guild", GUILD)
    assert [(f"{PLACE}/guilds/{GUILD}/commands", COMMANDS)] == discord.commands


async def test_what_is_missing_or_wrong_is_told_in_one_line(discord, register):
    for words, changes, wanted in (
        ((), {"DISCORD_BOT_TOKEN": ""}, "DISCORD_BOT_TOKEN is not set"),
        ((), {"DISCORD_APPLICATION_ID": ""}, "DISCORD_APPLICATION_ID is not set"),
        ((), {"DISCORD_APPLICATION_ID": "me"}, "DISCORD_APPLICATION_ID: "),
        (("--guild", "../x"), {}, "--guild: must be"),
    ):
        code, text = await register(*words, **changes)
        assert (2, 1, True) == (code, len(text.splitlines()), wanted in text)
    assert [] == discord.commands


async def test_what_discord_refuses_has_an_exit_code_of_its_own(discord, register):
    another = {"DISCORD_BOT_TOKEN": "another"}
    assert (4, True) == _about(await register(**another), "status 401")
    discord.refusals += [(429, {}), (500, {}), (400, {"message": "Invalid"})]
    assert (6, True) == _about(await register(), "try again in 7 s")
    assert (7, True) == _about(await register(), "status 500")
    assert (2, True) == _about(await register(), "status 400")
    gone = {"DISCORD_API_BASE_URL": "http://127.0.0.1:9"}
    assert (7, True) == _about(await register(**gone), "does not answer")


def _about(ran, text):
    return ran[0], text in ran[1]
