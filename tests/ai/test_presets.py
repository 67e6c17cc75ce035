"""Providers by purpose: whom a setting chooses, with which model, asked how."""

import pytest
from pydantic import BaseModel

from backburner import App, ConfigurationError, ModelUse, Setup
from backburner.adapters import find_providers
from backburner.ai.presets import PRESETS
from backburner.clock import SystemClock
from backburner.engine.models.asking import Asker, Providers
from backburner.engine.observability import telemetry
from backburner.settings import Settings
from backburner.startup import check

KEY = "sk-very-secret-key"
CHAT = {
    "model": "m",
    "choices": [{"message": {"content": '{"number": 1}'}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}
END = {"model": "m", "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}


class Number(BaseModel):
    number: int


@pytest.fixture
async def chosen(monkeypatch, raw):
    """Read settings by which every service has a key and the address of `raw`."""
    for preset in PRESETS.values():
        monkeypatch.setenv(preset.key_variable, KEY)
        monkeypatch.setenv(preset.url_variable, raw.url)

    made = []

    def read(**settings):
        made.append(find_providers(Settings(**settings), SystemClock()))
        return made[-1]

    yield read
    for found in made:
        await Providers((), SystemClock(), by_purpose=found).close()


def named(providers, purpose):
    """Return the names and models of a purpose's chain."""
    chain = providers[purpose]
    return [f"{each.name}:{getattr(each.models, purpose)}" for each in chain]


def test_each_purpose_has_a_chain_of_its_own(chosen):
    found = chosen(
        ai=("openai", "mock"),
        ai_text=("deepseek", "ollama:llama3.2:3b", "mock"),
        ai_embedding=("mistral",),
        ai_audio=("gemini", "groq:whisper-large-v3"),
    )

    text = ["deepseek:deepseek-chat", "ollama:llama3.2:3b", "mock:mock"]
    assert text == named(found, "chat")
    assert ["mistral:mistral-embed"] == named(found, "embedding")
    heard = ["gemini:gemini-2.5-flash", "groq:whisper-large-v3"]
    assert heard == named(found, "transcription")
    assert ["openai:gpt-5-mini", "mock:mock"] == named(found, "vision")


def test_a_provider_of_several_purposes_is_made_once(chosen):
    found = chosen(ai=("openai",))

    assert 1 == len({id(each) for chain in found.values() for each in chain})


def test_a_model_that_is_set_is_the_first_providers(chosen):
    found = chosen(ai_text=("deepseek", "mistral"), ai_model="deepseek-reasoner")

    text = ["deepseek:deepseek-reasoner", "mistral:mistral-small-latest"]
    assert text == named(found, "chat")


def test_of_the_chain_of_all_purposes_only_those_are_asked_that_can(chosen):
    found = chosen(ai=("deepseek", "anthropic"))

    assert ["anthropic:claude-haiku-4-5"] == named(found, "vision")
    assert [] == named(found, "embedding") + named(found, "transcription")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"ai_embedding": ("deepseek",)},
            "AI_EMBEDDING: 'deepseek' has no models for embedding, only for text",
        ),
        (
            {"ai_audio": ("mock", "anthropic")},
            "AI_AUDIO: 'anthropic' has no models for audio, only for text, vision",
        ),
        ({"ai_text": ("ollama",)}, "write ollama:MODEL in BACKBURNER_AI_TEXT"),
        ({"ai": ("vllm",)}, "write vllm:MODEL in BACKBURNER_AI_TEXT"),
        (
            {"ai_vision": ("none",)},
            "BACKBURNER_AI_VISION: no provider is named 'none'",
        ),
        ({"ai": ("openai:gpt-5",)}, "BACKBURNER_AI: a model belongs to a purpose"),
    ],
)
def test_a_choice_that_cannot_work_refuses_the_start(chosen, settings, told):
    with pytest.raises(ConfigurationError, match=f"^.*{told}"):
        chosen(**settings)


def test_only_a_text_provider_without_its_key_refuses_the_start(chosen, monkeypatch):
    for name in ("GEMINI_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(name)

    found = chosen(ai=("mock",), ai_audio=("gemini",))

    assert [] == named(found, "transcription")
    with pytest.raises(ConfigurationError, match=r"^DEEPSEEK_API_KEY is not set"):
        chosen(ai_text=("deepseek",))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ai": ("deepseek",)}, "BACKBURNER_AI_AUDIO is not set"),
        ({"ai": ("mock",), "ai_audio": ("gemini",)}, "GEMINI_API_KEY is not set"),
        ({}, "BACKBURNER_AI is not set"),
    ],
)
def test_an_application_refuses_to_start_without_its_purpose(
    monkeypatch, settings, named
):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    heard = App("inbox", models=[ModelUse("transcription")])

    check(Settings(ai=("mock",)), [heard], Setup())
    check(Settings(ai_audio=("ollama", "mock")), [heard], Setup())
    with pytest.raises(ConfigurationError, match=f"^{named}.* application 'inbox'"):
        check(Settings(**settings), [heard], Setup())


def test_a_wrong_address_names_its_variable_and_shows_no_key(chosen, monkeypatch):
    monkeypatch.setenv("GROQ_BASE_URL", "groq:8443")

    with pytest.raises(ConfigurationError, match=r"^GROQ_BASE_URL: .*must be") as told:
        chosen(ai_text=("groq",))
    assert KEY not in str(told.value)


def asked(found):
    return Asker(Providers((), SystemClock(), by_purpose=found))


@pytest.mark.parametrize(
    ("name", "limit", "has_json_mode"),
    [
        ("openai", "max_tokens", True),  # at another address than its own
        ("deepseek", "max_tokens", False),
        ("gemini", "max_tokens", True),
        ("anthropic", "max_tokens", False),
        ("groq", "max_tokens", True),
        ("mistral", "max_tokens", True),
        ("ollama:m", "max_tokens", True),
        ("vllm:m", "max_tokens", True),
    ],
)
async def test_a_service_is_asked_as_it_wants(raw, chosen, name, limit, has_json_mode):
    raw.says(CHAT)
    found = chosen(ai_text=(name,))
    asker = asked(found)

    answer = await asker.ask("one", into=Number, max_tokens=20, temperature=0.1)
    (request,) = raw.requests

    assert Number(number=1) == answer
    expected = {"model", "messages", "temperature", limit}
    assert expected | ({"response_format"} if has_json_mode else set()) == set(request)
    assert name.partition(":")[0] == asker.calls[0].provider


async def test_openai_itself_gets_its_new_name_of_the_limit(chosen, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    (provider,) = chosen(ai_text=("openai",))["chat"]

    assert "max_completion_tokens" == provider._most


@pytest.mark.parametrize(("name", "counts"), [("mistral", False), ("groq", True)])
async def test_a_stream_is_counted_where_that_is_taken(raw, chosen, name, counts):
    raw.streams(END, b"[DONE]")
    found = chosen(ai_text=(name,))

    assert "a" == await asked(found).ask("one", stream=True)
    assert counts is ("stream_options" in raw.requests[0])


async def test_a_recording_is_part_of_a_chat_where_there_are_no_transcriptions(
    raw, chosen
):
    raw.says({**CHAT, "choices": [{"message": {"content": "hello"}}]})
    found = chosen(ai_audio=("gemini",))

    assert "hello" == await asked(found).transcribe(b"abc", "audio/mpeg")
    (message,) = raw.requests[0]["messages"]
    part = {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}}
    assert part == message["content"][1]


async def test_a_call_is_counted_under_the_presets_name(raw, chosen):
    labels = {"provider": "deepseek", "purpose": "chat"}
    before = counted(**labels, result="ok"), counted(**labels, result="AI_UNAVAILABLE")
    raw.says(b"{}", "500 Broken")
    raw.says(CHAT)
    asker = asked(chosen(ai_text=("deepseek", "deepseek:other")))

    await asker.ask("one")

    after = counted(**labels, result="ok"), counted(**labels, result="AI_UNAVAILABLE")
    assert (before[0] + 1, before[1] + 1) == after


def counted(**labels):
    found = telemetry.registry.get_sample_value("backburner_ai_calls_total", labels)
    return found or 0.0
