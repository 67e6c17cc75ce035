"""What is sent to and taken from Discord has the types of npm's discord-api-types."""

import json

import pytest

from backburner_apps.chat.discord.commands import COMMANDS
from backburner_apps.chat.discord.interaction import (
    DEFERRED,
    PONG,
    Interaction,
    message,
    private,
)
from tests.apps.chat.discord import node
from tests.apps.chat.discord.payloads import IMAGE, PING, a_command, a_user

COMPILER = node.HOME / "typescript" / "bin" / "tsc"
WORDS = (
    *("--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"),
    *("--module", "nodenext", "--moduleResolution", "nodenext", "--pretty", "false"),
)


def direct():
    """Return the same command in a direct message."""
    command = a_command(2, personality="demo", message="hi")
    for name in ("guild_id", "guild", "guild_locale", "member"):
        del command[name]
    return {**command, "user": a_user()}


SAMPLES = {
    "APIPingInteraction": [PING],
    "APIChatInputApplicationCommandInteraction": [
        a_command(1, personality="demo", message="hi", attachment=IMAGE),
        a_command(3, name="forget"),
        direct(),
    ],
    "APIInteractionResponsePong": [PONG],
    "APIInteractionResponseDeferredChannelMessageWithSource": [DEFERRED],
    "APIInteractionResponseChannelMessageWithSource": [private("hi")],
    "RESTPatchAPIInteractionOriginalResponseJSONBody": [message("hi")],
    "RESTPostAPIInteractionFollowupJSONBody": [message("hi")],
    "RESTPutAPIApplicationCommandsJSONBody": [COMMANDS],
}
SPOILT = {
    "APIInteractionResponseDeferredChannelMessageWithSource": [{"type": 4}],
    "RESTPatchAPIInteractionOriginalResponseJSONBody": [{"content": 7}],
    "RESTPutAPIApplicationCommandsJSONBody": [[{"description": "no name"}]],
}


def program(samples):
    """Write a TypeScript program with a constant for each payload."""
    names = ", ".join(("Locale", *samples))
    lines = [f"import {{ {names} }} from 'discord-api-types/v10';"]
    for kind, values in samples.items():
        lines += [
            f"export const {kind}{n}: {kind} = {json.dumps(value)};"
            for n, value in enumerate(values)
        ]
    # TypeScript takes no plain text for a member of an enumeration of texts.
    return "\n".join(lines).replace('"en-US"', "Locale.EnglishUS")


def compiled(folder, samples):
    """Return what the compiler says of payloads."""
    modules = folder / "node_modules"
    if not modules.exists():
        modules.symlink_to(node.HOME)
    file = folder / "payloads.ts"
    file.write_text(program(samples))
    ran = node.run(COMPILER, *WORDS, file)
    return [line for line in ran.stdout.splitlines() if "error" in line], ran


@pytest.mark.thorough
def test_payloads_have_the_types_of_discord_and_the_compiler_would_tell(tmp_path):
    errors, ran = compiled(tmp_path, SAMPLES)
    assert ([], 0) == (errors, ran.returncode), ran.stdout + ran.stderr
    errors, ran = compiled(tmp_path, SPOILT)
    assert len(SPOILT) == len(errors), ran.stdout + ran.stderr


def test_the_commands_that_discord_sends_are_read():
    full, forget, in_direct = (
        Interaction.model_validate(value)
        for value in SAMPLES["APIChatInputApplicationCommandInteraction"]
    )
    assert ("demo", "hi") == (full.data.text("personality"), full.data.text("message"))
    assert IMAGE["url"] == full.data.attachment.url
    assert (a_user()["id"], a_user()["id"]) == (full.user_id, in_direct.user_id)
    assert ("forget", None) == (forget.data.name, forget.data.attachment)
