"""Voice messages: fetched by the bot, written down, read as a text."""

import pytest
import telegram

from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.domain.ai import by_status
from backburner.ports.ai import Fault, Reply, Tokens
from backburner_apps.inbox import tables
from backburner_apps.inbox import telegram as bot_api
from tests.apps.inbox.conftest import FAILED, OWNER, SUCCEEDED, written

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
SOUND = b"OggS a recording"
ERROR = "❌ Something went wrong and your message could not be processed."


class Hearing(Mock):
    """A mock that hears the same in every recording."""

    def __init__(self, said):
        super().__init__(SystemClock())
        self.said, self.heard, self.broken = said, [], False

    async def transcribe(self, audio, model):
        if self.broken:
            raise Fault(by_status(400), "it answered 400", status=400)
        self.heard.append((audio.content, audio.mime_type))
        return Reply(self.said, model, Tokens(0, 5))


def spoken(name="f1", mime_type="audio/ogg"):
    voice = telegram.Voice(name, f"u-{name}", 3, mime_type=mime_type, file_size=16)
    return written(voice=voice)


@BOTH
async def test_a_voice_message_becomes_tasks(start):
    provider = Hearing("Buy bread tomorrow: rye, white")
    inbox = await start(provider=provider)
    created = {"source": "ai", "sourceType": "voice"}
    before = inbox.metric("tasks_created_total", **created)
    inbox.bot.files["voice/f1.oga"] = SOUND
    update = spoken()
    for _ in range(2):
        assert 200 == (await inbox.post(update)).status_code
    [reply] = await inbox.bot.said()
    await inbox.rest()
    [task] = await inbox.tasks()

    assert [(SOUND, "audio/ogg")] == provider.heard
    assert ("Buy bread", "voice", None) == (
        task.title,
        task.source_type,
        task.original_input,
    )
    assert reply.startswith("✅ Task created\n\n1. Buy bread")
    assert before + 1 == inbox.metric("tasks_created_total", **created)


async def test_what_was_said_is_kept_if_it_is_not_understood(start):
    inbox = await start(provider=Hearing("[[mock: nonsense]] mumble"))
    inbox.bot.files["voice/f1.oga"] = SOUND
    await inbox.post(spoken())
    await inbox.rest()
    [task] = await inbox.tasks()

    assert ("PARSE_FAILED", "VOICE", "[[mock: nonsense]] mumble") == (
        task.status,
        task.original_input_type,
        task.original_input,
    )


@pytest.mark.parametrize("provider", [(), ("gemini",)])
async def test_without_a_provider_or_its_key_the_user_is_told(start, provider):
    inbox = await start(ai=(), ai_text=("mock",), ai_audio=provider)
    await inbox.post(spoken())
    [reply] = await inbox.bot.said()
    await inbox.rest()
    job, [record] = await inbox.job(), await inbox.rows(tables.records)

    assert (FAILED, 1, "AI_AUDIO_PROVIDER_NOT_ENABLED") == (
        job.state,
        job.attempt,
        job.error.code,
    )
    assert reply.startswith("🎤 Voice messages are not enabled here.")
    assert "FAILED" == record.status
    assert ["sendMessage"] == [method for method, _ in inbox.bot.calls]
    await inbox.say("Buy milk")
    await inbox.rest()
    assert 1 == len(await inbox.tasks()), "texts are read all the same"


async def test_a_dead_voice_message_is_read_once_there_is_a_provider(start):
    deaf = await start(ai=(), ai_text=("mock",))
    await deaf.post(spoken())
    await deaf.rest()
    await deaf.backburner.stop_worker(0)
    job = await deaf.job()
    hearing = await start(provider=Hearing("Buy bread"))
    hearing.bot.files["voice/f1.oga"] = SOUND
    await hearing.backburner.engine.retry(job.id, OWNER)
    await hearing.rest()
    [task], [record] = await hearing.tasks(), await hearing.rows(tables.records)

    assert ("Buy bread", "SUCCESS") == (task.title, record.status)


async def test_a_voice_message_that_cannot_be_fetched_is_kept(start):
    inbox = await start(provider=Hearing("unheard"))
    await inbox.post(spoken("gone"))
    [reply] = await inbox.bot.said()
    await inbox.rest()
    [task], job = await inbox.tasks(), await inbox.job()

    assert (SUCCEEDED, 1) == (job.state, job.attempt), "a 400 is not repeated"
    assert ("PARSE_FAILED", "VOICE", "", "Voice message") == (
        task.status,
        task.original_input_type,
        task.original_input,
        task.title,
    )
    assert reply.startswith(ERROR)


async def test_a_bot_api_that_fails_is_asked_for_the_recording_again(start):
    inbox = await start(provider=Hearing("Buy bread"))
    inbox.bot.files["voice/f1.oga"] = SOUND
    later = b'{"ok": false, "parameters": {"retry_after": 0}}'
    inbox.bot.script.extend([(502, b""), (429, later), (200, b"{}")])
    await inbox.post(spoken())
    await inbox.rest()
    [task], job = await inbox.tasks(), await inbox.job()

    assert ("Buy bread", 3) == (task.title, job.attempt), "the 429 cost no attempt"


async def test_a_provider_that_cannot_hear_is_named(start):
    labels = {"result": "fallback", "provider": "deaf"}
    provider = Hearing("unheard")
    provider.name, provider.broken = "deaf", True
    inbox = await start(provider=provider)
    before = inbox.metric("ai_parse_total", **labels)
    inbox.bot.files["voice/f1.oga"] = SOUND
    await inbox.post(spoken())
    await inbox.rest()
    [task] = await inbox.tasks()

    assert ("PARSE_FAILED", "VOICE") == (task.status, task.original_input_type)
    assert before + 1 == inbox.metric("ai_parse_total", **labels)


async def test_a_recording_that_is_too_large_is_not_read(start, monkeypatch):
    monkeypatch.setattr(bot_api, "LARGEST_VOICE", 10)
    provider = Hearing("unheard")
    inbox = await start(provider=provider)
    inbox.bot.files["voice/f1.oga"] = SOUND
    await inbox.post(spoken())
    await inbox.rest()
    [task] = await inbox.tasks()

    assert ("PARSE_FAILED", []) == (task.status, provider.heard)
