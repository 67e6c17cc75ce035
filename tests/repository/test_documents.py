"""The documents are true: what they list is what is there."""

import ast
import inspect
import re
import textwrap
from itertools import pairwise
from pathlib import Path

from pydantic_settings import BaseSettings

from backburner.domain.jobs.transitions import ALLOWED
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


def test_the_tree_names_every_folder_of_backburner():
    package = ROOT / "src" / "backburner"
    folders = {p.parent.name for p in package.glob("*/__init__.py")}
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


def test_a_setting_is_described_alike_in_the_code_the_guide_and_the_sample():
    guide = (ROOT / "docs" / "operating.md").read_text()
    cells = dict(re.findall(r"^\| `([A-Z_]+)` \|[^|]*\| (.*) \|$", guide, re.MULTILINE))
    sample = (ROOT / ".env.example").read_text()
    comments = {
        block.splitlines()[-1].lstrip("# ").partition("=")[0]: " ".join(
            line.removeprefix("# ") for line in block.splitlines()[:-1]
        )
        for block in sample.split("\n\n")
    }
    described = {
        variable(name, model): text
        for model in MODELS
        for name, text in descriptions(model).items()
    }

    assert [] == [n for n, text in described.items() if not cells[n].startswith(text)]
    assert [] == [n for n, text in described.items() if comments[n] != text]
    assert [] == [n for n, text in described.items() if "Default: " not in text]


def descriptions(model):
    """Return the docstring of each field, in one line."""
    found = {}
    for kind in reversed(model.__mro__[: model.__mro__.index(BaseSettings)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
        found |= {
            field.target.id: " ".join(below.value.value.split())
            for field, below in pairwise(body)
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr)
        }
    assert set(model.model_fields) == set(found)
    return found


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
