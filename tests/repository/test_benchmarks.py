"""Every benchmark figure in the documentation is one of docs/benchmarks.json."""

import json
import re
from pathlib import Path

import pytest

from bench import table
from bench.__main__ import PUBLISHED, tables

ROOT = Path(__file__).parents[2]
REPORT = json.loads((ROOT / PUBLISHED).read_text())
RATE = re.compile(r"\d[\d,.]*\s*(?:jobs/s|ms\b|µs|jobs (?:a|per) second)")
PLACES = ("sqlite", "postgres", "rabbitmq", "redis", "sqs")
README_LINES = 150


def between_marks(page):
    text = (ROOT / page).read_text()
    return text.split(table.BEGIN)[1].split(table.END)[0]


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_a_table_is_the_one_that_the_figures_give(page):
    assert tables(REPORT)[page] == between_marks(page)


def test_a_changed_figure_gives_another_table():
    changed = json.loads(json.dumps(REPORT))
    for run in changed["runs"]["sqlite drain"]:
        run["per_second"] += 1

    for page in ("README.md", "docs/benchmarks.md"):
        assert tables(changed)[page] != between_marks(page)


def test_the_figures_say_where_they_come_from():
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?", REPORT["commit"])
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", REPORT["date"])


def test_the_readme_has_six_figures_and_none_outside_its_table():
    before, _, rest = (ROOT / "README.md").read_text().partition(table.BEGIN)
    inside, _, after = rest.partition(table.END)
    rows = [line for line in inside.splitlines() if line.startswith("| ")][1:]

    assert [] == RATE.findall(before + after)
    assert 6 == len([row for row in rows if "**" in row])
    assert all(row.split("|")[-2].strip() for row in rows)


def test_the_table_of_transports_has_the_published_figures():
    page = (ROOT / "docs" / "scaling.md").read_text()
    rows = [
        line.split("|")
        for line in page.splitlines()
        if " ms |" in line or " ms (" in line
    ]
    shown = [(cells[4].split()[0], cells[5].split()[0]) for cells in rows]

    assert [(figure("drain", p), figure("latency_there", p)) for p in PLACES] == shown


def figure(name, place):
    """Return a row's median as the tables show it."""
    row = next(r for r in (*table.ROWS, *table.BROKER_ROWS) if r.name == name)
    values = sorted(table.values_of(row, place, REPORT["runs"]))
    return f"{values[1]:,}"


def test_the_readme_is_short():
    assert README_LINES > len((ROOT / "README.md").read_text().splitlines())
