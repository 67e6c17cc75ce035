import pytest

from backburner.domain.errors import ConfigurationError
from backburner.domain.webhooks.address import Reach
from backburner.settings import Settings, read


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    monkeypatch.delenv("BACKBURNER_STORE", raising=False)


def test_an_unset_environment_gives_the_defaults():
    settings = read()

    assert "sqlite:///backburner.db" == settings.store
    assert (100, 2.0, 10.0, 3) == (
        settings.slots,
        settings.beat_seconds,
        settings.lease_seconds,
        settings.crash_limit,
    )


def test_the_environment_is_read(monkeypatch):
    monkeypatch.setenv("BACKBURNER_SLOTS", "8")
    monkeypatch.setenv("BACKBURNER_QUEUES", "fast, slow,")

    settings = read()

    assert 8 == settings.slots
    assert ("fast", "slow") == settings.queues


def test_what_is_given_comes_before_the_environment(monkeypatch):
    monkeypatch.setenv("BACKBURNER_SLOTS", "8")

    assert 9 == read(slots=9).slots
    assert 8 == read(slots=None).slots


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("BACKBURNER_SLOT", "; did you mean BACKBURNER_SLOTS?"),
        ("BACKBURNER_LEASE_SECOND", "; did you mean BACKBURNER_LEASE_SECONDS?"),
        ("BACKBURNER_ZZZZZZZZZZZZZZ", ""),
        ("BACKBURNER_FOO", ""),
    ],
)
def test_an_unknown_setting_is_refused_with_a_near_one(monkeypatch, name, hint):
    monkeypatch.setenv(name, "1")

    with pytest.raises(ConfigurationError) as raised:
        read()

    assert f"{name} is not a setting{hint}" == str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BACKBURNER_SLOTS", "many"),
        ("BACKBURNER_SLOTS", "0"),
        ("BACKBURNER_PORT", "65536"),
        ("BACKBURNER_LOG_LEVEL", "loud"),
        ("BACKBURNER_BEAT_SECONDS", "0"),
        ("BACKBURNER_POLL_SECONDS", "nan"),
        ("BACKBURNER_CRASH_LIMIT", "-1"),
        ("BACKBURNER_LINK_SECRET", "short"),
        ("BACKBURNER_LINK_SECRET", f"{'x' * 32},short"),
        ("BACKBURNER_WEBHOOK_SECRET", "short"),
        ("BACKBURNER_WEBHOOK_ALLOW", "10.0.0.0/33"),
        ("BACKBURNER_WEBHOOK_ALLOW", "http://inside.example"),
        ("BACKBURNER_WEBHOOK_HTTP", "perhaps"),
        ("BACKBURNER_WEBHOOK_PORTS", "443,https"),
        ("OPENAI_BASE_URL", "https:///v1"),
        ("OPENAI_BASE_URL", "https://api.example/v1?key=1"),
    ],
)
def test_a_wrong_value_names_its_setting(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        read()


def test_secrets_of_links_are_listed_and_not_shown():
    settings = Settings(link_secret=f"{'a' * 32}, {'b' * 32},")

    assert ("a" * 32, "b" * 32) == settings.link_secrets
    assert "aaaa" not in repr(settings)


def test_a_lease_shorter_than_two_beats_is_refused(monkeypatch):
    monkeypatch.setenv("BACKBURNER_BEAT_SECONDS", "6")

    with pytest.raises(ConfigurationError, match="at least twice"):
        read()


def test_the_reach_of_webhooks_is_read(monkeypatch):
    monkeypatch.setenv("BACKBURNER_WEBHOOK_ALLOW", "tasks:8001, 10.0.0.0/8")
    monkeypatch.setenv("BACKBURNER_WEBHOOK_HTTP", "true")
    monkeypatch.setenv("BACKBURNER_WEBHOOK_PORTS", "80, 8080")

    reach = read().reach

    assert reach.vouches_for("tasks", 8001)
    assert reach.admits("10.1.2.3")
    assert (True, (80, 8080)) == (reach.is_plain_allowed, reach.ports)


def test_only_the_public_net_by_https_is_within_reach_unless_set():
    assert Reach() == read().reach


def test_a_webhook_shorter_than_its_connect_is_refused(monkeypatch):
    monkeypatch.setenv("BACKBURNER_WEBHOOK_SECONDS", "3")

    with pytest.raises(ConfigurationError, match="WEBHOOK_SECONDS must be more"):
        read()


def test_what_others_named_is_read_by_their_name(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.deepseek.com/v1/")
    monkeypatch.setenv("BACKBURNER_AI", "openai, mock")
    settings = read()

    assert "sk-secret" == settings.openai_api_key.get_secret_value()
    assert "sk-secret" not in repr(settings)
    assert "https://api.deepseek.com/v1" == settings.openai_base_url
    assert ("openai", "mock") == settings.ai


def test_what_others_named_is_not_ours_to_rename(monkeypatch):
    monkeypatch.setenv("BACKBURNER_OPENAI_API_KEY", "sk-secret")

    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY is not a setting"):
        read()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_BASE_URL", "here"),
        ("BACKBURNER_AI_SECONDS", "0"),
    ],
)
def test_a_wrong_value_for_models_names_its_setting(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        read()


def test_settings_for_tests_are_not_mistaken_for_settings(monkeypatch):
    monkeypatch.setenv("BACKBURNER_TEST_POSTGRES_URL", "postgresql://x")

    assert 100 == read().slots


def test_origins_are_listed_exactly(monkeypatch):
    listed = "https://app.example, http://localhost:5173,http://[::1]:8080"
    monkeypatch.setenv("BACKBURNER_CORS_ORIGINS", listed)

    assert tuple(listed.replace(" ", "").split(",")) == read().cors_origins


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "*",
            "null",
            "app.example",
            "https://",
            "https://*.example",
            "ftp://a.example",
        ),
        *("https://a.example/", "https://a.example/app", "https://A.example"),
        *("https://a.example:443", "http://a.example:80", "https://u@a.example"),
        *("https://a.example?x", "https://a.example:x", "https://straße.example"),
    ],
)
def test_what_is_no_exact_origin_is_refused(monkeypatch, origin):
    monkeypatch.setenv("BACKBURNER_CORS_ORIGINS", f"https://b.example,{origin}")
    with pytest.raises(ConfigurationError, match=r"CORS_ORIGINS.*not an origin"):
        read()


def test_text_and_audio_have_other_names(monkeypatch):
    monkeypatch.setenv("AI_TEXT_PROVIDER", "deepseek,openai:gpt-5-mini")
    monkeypatch.setenv("AI_AUDIO_PROVIDER", "gemini")
    found = read()

    assert ("deepseek", "openai:gpt-5-mini") == found.ai_text
    assert ("gemini",) == found.ai_audio

    monkeypatch.setenv("BACKBURNER_AI_TEXT", "mistral")
    assert ("mistral",) == read().ai_text, "ours comes first"
