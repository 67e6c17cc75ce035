"""Which settings a process must have for what it is asked to run."""

import pytest

from backburner import App, ModelUse, Need, Setup
from backburner.domain.errors import ConfigurationError
from backburner.environment import variables
from backburner.settings import Settings
from backburner.startup import check, problems, read_apps, signing_warning
from backburner_apps.ai import AiSettings
from backburner_apps.ai import app as ai
from backburner_apps.tasks import app as tasks
from backburner_apps.tasks.settings import TasksSettings

KEYED = {"key_pepper": "p" * 32, "webhook_secret": "s" * 32}
SIGNED = {"webhook_secret": "s" * 32}
TASKS = {"TASKS_SERVICE_BASE_URL": "http://127.0.0.1:1"}
AI = {"AI_SERVICE_BASE_URL": "http://127.0.0.1:2"}
MOCK = {"ai": ("mock",)}
SERVE, KEYED_SERVE = {"works": False}, {"works": False, "is_keyed": True}


def missing(apps, setup, **settings):
    """Return the names of the settings that are reported, in order."""
    served = frozenset(setup.pop("served", ()))
    own = {name: settings.pop(name) for name in [*settings] if name.isupper()}
    given = [
        TasksSettings(**_of(TasksSettings, own)),
        AiSettings(**_of(AiSettings, own)),
    ]
    found = problems(
        Settings(**settings), apps, Setup(served, **setup), read_apps(apps, given)
    )
    return [sentence.split()[0] for sentence in found]


def _of(model, values):
    return {name: value for name, value in values.items() if name in variables(model)}


@pytest.mark.parametrize(
    ("apps", "setup", "settings", "named"),
    [
        ([], {"is_keyed": True}, {}, "BACKBURNER_KEY_PEPPER BACKBURNER_WEBHOOK_SECRET"),
        ([], {"is_keyed": True}, KEYED, ""),
        ([], {}, {}, ""),
        ([tasks], {**SERVE, "served": ["tasks"]}, {**SIGNED, **TASKS, **AI}, ""),
        (
            [tasks],
            {**SERVE, "served": ["tasks"]},
            {},
            "BACKBURNER_WEBHOOK_SECRET TASKS_SERVICE_BASE_URL AI_SERVICE_BASE_URL",
        ),
        (
            [tasks],
            {**KEYED_SERVE, "served": ["tasks"]},
            {**KEYED, **TASKS, **AI},
            "BACKBURNER_API_KEY",
        ),
        (
            [tasks, ai],
            {**KEYED_SERVE, "served": ["tasks", "ai"]},
            {**KEYED, **MOCK},
            "BACKBURNER_API_KEY",
        ),
        ([tasks], {}, {}, ""),
        (
            [ai],
            {},
            {},
            "BACKBURNER_AI BACKBURNER_WEBHOOK_SECRET TASKS_SERVICE_BASE_URL",
        ),
        ([ai], {}, {**SIGNED, **TASKS, **MOCK}, ""),
        ([ai], {}, {**SIGNED, **MOCK, "webhook_allow": ("10.0.0.0/8",)}, ""),
        ([ai], {**SERVE, "served": ["ai"]}, {**SIGNED, **TASKS}, "BACKBURNER_AI"),
        ([ai], SERVE, {}, ""),
    ],
)
def test_every_missing_setting_is_named_once(apps, setup, settings, named):
    assert named.split() == missing(apps, dict(setup), **settings)


def test_only_a_required_purpose_refuses_the_start():
    required = App("a", models=[ModelUse("vision")])
    optional = App("b", models=[ModelUse("vision", is_required=False, code="NO_EYES")])

    check(Settings(), [optional], Setup())
    check(Settings(ai=("mock",)), [required], Setup())
    with pytest.raises(
        ConfigurationError, match=r"^BACKBURNER_AI is not set: .*vision"
    ):
        check(Settings(), [required, optional], Setup())


@pytest.mark.parametrize(
    ("apps", "plan", "secret", "is_warned"),
    [
        ([ai], {"serves": False, "is_keyed": False}, "", True),
        ([], {"serves": True, "is_keyed": True}, "", True),
        ([], {"serves": False, "is_keyed": False}, "", False),
        ([ai], {"serves": True, "is_keyed": False}, "", False),
        ([ai], {"serves": True, "is_keyed": True}, "s" * 32, False),
    ],
    ids=["worker", "server with keys", "plain worker", "for one machine", "secret"],
)
def test_who_signs_for_others_without_a_shared_secret_is_warned(
    apps, plan, secret, is_warned
):
    found = signing_warning(Settings(link_secret=secret), apps, **plan)

    assert is_warned == (found is not None and "BACKBURNER_LINK_SECRET" in found)


def test_an_application_knows_whether_a_process_is_for_development():
    def needs(setup):
        yield from () if setup.is_dev else [Need(("api_key",), "to call others")]

    app = App("careful", needs=needs)

    assert ["BACKBURNER_API_KEY"] == missing([app], {})
    assert [] == missing([app], {"is_dev": True})
