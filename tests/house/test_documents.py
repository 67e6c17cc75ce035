"""The documents are true: what they list is what is there."""

import re
from pathlib import Path

from backburner.domain.transitions import ALLOWED
from backburner.environment import variable, variables
from backburner.settings import Settings
from backburner_apps.ai import AiSettings
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.features.settings import FeaturesSettings
from backburner_apps.inbox.settings import InboxSettings
from backburner_apps.tasks.settings import TasksSettings

ALIASES = ("RABBITMQ_URL", "REDIS_URL", "AI_TEXT_PROVIDER", "AI_AUDIO_PROVIDER")
MODELS = (
    *(Settings, TasksSettings, AiSettings, ChatSettings, InboxSettings),
    *(DocumentsSettings, FeaturesSettings),
)

ROOT = Path(__file__).parents[2]


def between(text: str, mark: str) -> str:
    return (
        text.split(f"<!-- {mark} -->")[1]
        .split(f"<!-- /{mark} -->", maxsplit=1)[0]
        .strip()
    )


def test_the_table_of_states_is_the_one_in_the_code():
    rows = [
        f"| `{state}` | {', '.join(f'`{to}`' for to in sorted(targets))} |".replace(
            "|  |", "| |"
        )
        for state, targets in ALLOWED.items()
    ]
    expected = "\n".join(["| state | may become |", "| --- | --- |", *rows])

    assert expected == between((ROOT / "ARCHITECTURE.md").read_text(), "states")


def test_the_tree_names_every_folder_of_the_house():
    house = ROOT / "src" / "backburner"
    folders = {p.parent.name for p in house.glob("*/__init__.py")}
    named = set(
        re.findall(r"`src/backburner/(\w+)/`", (ROOT / "ARCHITECTURE.md").read_text())
    )

    assert folders == named


def test_the_sample_environment_has_every_setting_and_its_default():
    lines = (ROOT / ".env.example").read_text().splitlines()
    sample = dict(line.lstrip("# ").split("=", 1) for line in lines if "=" in line)
    expected = {
        variable(name, model): _written(getattr(model(), name))
        for model in MODELS
        for name in model.model_fields
    }
    expected |= dict.fromkeys(ALIASES, "")

    assert expected == sample


def test_every_setting_has_its_heading_in_the_operators_guide():
    guide = (ROOT / "docs" / "operating.md").read_text()
    missing = [
        variable
        for model in MODELS
        for variable in variables(model)
        if f"`{variable}`" not in guide
    ]

    assert [] == missing


def _written(value: object) -> str:
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_the_list_of_experiments_names_where_each_is():
    rows = [
        line.split("|")[1:4]
        for line in (ROOT / "docs" / "chaos.md").read_text().splitlines()
        if re.match(r"\| [\d, ]+ \|", line)
    ]
    listed = {
        (int(number), file)
        for numbers, _, files in rows
        for number in numbers.split(",")
        for file in re.findall(r"tests/chaos/\w+\.py", files)
    }
    marked = {
        (int(number), str(file.relative_to(ROOT)))
        for file in (ROOT / "tests" / "chaos").glob("test_*.py")
        for number in re.findall(r"experiment\((\d+)\)", file.read_text())
    }

    assert marked == listed
