"""The settings that an application brings: read, refused, shown, handed out."""

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner import App, ConfigurationError, read_settings
from backburner.environment import shown
from backburner.settings import read
from backburner.startup import read_apps
from backburner.testing.doubles import FakeContext
from backburner_apps.tasks.settings import TasksSettings

SECRET = "hunter2 and more"  # noqa: S105


class SongsSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SONGS_", frozen=True)

    limit: int = Field(3, ge=1)
    names: tuple[str, ...] = ()
    place: str = ""
    token: SecretStr = SecretStr("")
    other: str = Field("", validation_alias="OTHER_NAME")

    @field_validator("token")
    @classmethod
    def _check(cls, value):
        if "hunter2" in value.get_secret_value():
            raise ValueError(f"{value.get_secret_value()} is too short")
        return value

    @model_validator(mode="after")
    def _agree(self):
        if self.limit == 13:
            raise ValueError(f"{self.token.get_secret_value()} allows no 13")
        return self


songs = App("songs", settings=SongsSettings)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (
            {"SONGS_LIMIT": "many"},
            "SONGS_LIMIT: Input should be a valid integer",
        ),
        (
            {"SONGS_LIMIT": "0"},
            "than or equal to 1, not '0'",
        ),
        ({"SONGS_NAMES": "a,b"}, "SONGS_NAMES: must be JSON"),
        ({"SONGS_TOKEN": SECRET}, "SONGS_TOKEN: … is too short"),
        ({"SONGS_TOKEN": "abc def", "SONGS_LIMIT": "13"}, "… allows no 13"),
        ({"OTHER_NAME": "fine", "SONGS_LIMIT": "x"}, "(application 'songs')"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_variable(monkeypatch, env, told):
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError) as raised:
        read_apps([songs])

    assert told in str(raised.value)
    assert 1 == len(str(raised.value).splitlines())
    assert env.get("SONGS_TOKEN", SECRET) not in str(raised.value)


def test_the_errors_of_all_applications_are_told_together(monkeypatch):
    monkeypatch.setenv("SONGS_LIMIT", "0")
    monkeypatch.setenv("BACKBURNER_TASKS_TIMEZONE", "Nowhere/Atall")
    tasks = App("tasks", settings=TasksSettings)

    with pytest.raises(
        ConfigurationError, match=r"SONGS_LIMIT.*; BACKBURNER_TASKS_TIM"
    ):
        read_apps([songs, tasks, App("plain")])


def test_a_validator_that_raises_anything_is_no_traceback():
    class Broken(BaseSettings):
        model_config = SettingsConfigDict(env_prefix="BROKEN_")
        value: str = Field("x", validate_default=True)

        @field_validator("value")
        @classmethod
        def _check(cls, value):
            raise KeyError(value)

    with pytest.raises(ConfigurationError, match=r"^Broken: a validator raised KeyErr"):
        read_settings(Broken)


def test_secrets_are_shown_as_set_and_urls_without_their_password():
    settings = SongsSettings(
        token=SecretStr("abc"), place="redis://me:pass@host/1", names=("a", "b")
    )

    assert {
        "SONGS_LIMIT": "3",
        "SONGS_NAMES": "a,b",
        "SONGS_PLACE": "redis://…@host/1",
        "SONGS_TOKEN": "set",
        "OTHER_NAME": "",
    } == shown(settings)
    assert "not set" == shown(SongsSettings())["SONGS_TOKEN"]


def test_a_model_says_by_which_variables_it_is_set():
    class Nameless(BaseSettings):
        value: str = ""

    class Ours(BaseSettings):
        model_config = SettingsConfigDict(env_prefix="BACKBURNER_AI_")
        value: str = ""

    with pytest.raises(ConfigurationError, match="'value' has neither an `env_prefix`"):
        read_settings(Nameless)
    with pytest.raises(ConfigurationError, match="'BACKBURNER_AI_' is the platform's"):
        read_settings(Ours)


@pytest.mark.parametrize("model", [BaseModel, TasksSettings(), None])
def test_settings_that_are_no_settings_model_are_refused(model):
    with pytest.raises(ConfigurationError, match="must be a subclass of pydantic_sett"):
        read_settings(model)


def test_the_platform_leaves_an_installed_application_its_variables(monkeypatch):
    monkeypatch.setenv("BACKBURNER_TASKS_TOKENS", "5")

    assert 100 == read().slots
    assert 5 == read_settings(TasksSettings).tokens


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("BACKBURNER_TASKS_TOKEN", lambda: read_settings(TasksSettings)),
        ("BACKBURNER_AI_MODELL", read),
        ("BACKBURNER_SONGS_LIMIT", read),
    ],
)
def test_a_misspelt_variable_is_refused_by_whoever_owns_it(monkeypatch, name, reads):
    monkeypatch.setenv(name, "5")

    with pytest.raises(ConfigurationError, match=f"^{name} is not a setting"):
        reads()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TASKS_SERVICE_BASE_URL", "tasks:8443"),
        ("TASKS_SERVICE_BASE_URL", "https://"),
        ("AI_SERVICE_BASE_URL", "http://ai:99999"),
        ("AI_SERVICE_BASE_URL", "http://a i/"),
    ],
)
def test_a_wrong_address_of_a_service_names_its_setting(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        read_settings(TasksSettings)


def test_a_handler_gets_the_settings_of_the_model_it_names():
    ctx = FakeContext(settings=[SongsSettings(limit=7)])

    assert 7 == ctx.settings_of(SongsSettings).limit
    with pytest.raises(ConfigurationError, match=r"App\(settings=TasksSettings\)"):
        ctx.settings_of(TasksSettings)
