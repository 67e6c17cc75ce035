"""What the documents tell the reader to type works when typed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 60
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)

FLOWS = (ROOT / "docs" / "flows.md").read_text()
AI = (ROOT / "docs" / "ai.md").read_text()
LANES = (ROOT / "docs" / "lanes.md").read_text()
BUDGETS = (ROOT / "docs" / "budgets.md").read_text()
USAGE = (ROOT / "docs" / "usage.md").read_text()
HTTP_BLOCKS = [
    *BLOCK.findall((ROOT / "docs" / "http.md").read_text()),
    *BLOCK.findall(FLOWS),
    *BLOCK.findall(BUDGETS),
    *BLOCK.findall(USAGE),
]
CLIENT_BLOCKS = PYTHON.findall((ROOT / "docs" / "client.md").read_text())
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "backburner", "serve", "--dev", "--port", "0"),
            *("--store", f"sqlite:///{folder}/jobs.db"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        ready = next(line for line in server.stderr if " is ready at " in line)
        yield ready.split()[-1].rstrip("/")
        server.terminate()
        server.communicate(timeout=SECONDS)


@pytest.mark.parametrize("block", HTTP_BLOCKS)
def test_a_block_for_the_shell_shows_what_it_says(url, block):
    lines = block.splitlines()
    script = "\n".join(line for line in lines if not line.startswith("#"))
    promised = [line.removeprefix("# ") for line in lines if line.startswith("#")]

    told = subprocess.run(
        ["/bin/bash", "-euc", script],
        env={"URL": url, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    shown = told.stdout.replace(": ", ":")
    missing = [p for p in promised if p.rstrip("…").replace(": ", ":") not in shown]
    assert [] == missing


@pytest.mark.parametrize("block", CLIENT_BLOCKS)
def test_a_block_of_the_client_guide_prints_what_it_says(url, block):
    promised = re.findall(r"print\(.*# (.*)$", block, re.MULTILINE)

    told = subprocess.run(
        [sys.executable, "-c", block],
        env={"BACKBURNER_URL": url},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    assert promised
    assert [] == [line for line in promised if line not in told.stdout]


@pytest.mark.parametrize("block", PYTHON.findall(FLOWS + LANES + BUDGETS + USAGE + AI))
def test_a_program_of_a_guide_prints_what_it_says(tmp_path, block):
    promised = re.findall(r"print\(.*# (.*)$", block, re.MULTILINE)

    told = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    assert promised
    assert [] == [line for line in promised if line not in told.stdout]


TOTAL = """
@capability("total")
async def total(ctx: Context, value: None) -> int:
    return sum(need.output["words"] for need in ctx.needs.values())

"""


def test_the_flow_of_the_readme_runs(tmp_path):
    first, _, flow = PYTHON.findall(README)[:3]
    body = "".join(f"        {line}\n" for line in flow.splitlines())
    program = (
        f"import asyncio\nfrom backburner import Backburner, Flow\n{first}\n{TOTAL}\n"
        "async def main():\n"
        "    apps = [App('words', capabilities=[count_words, total])]\n"
        "    async with Backburner(store='sqlite:///jobs.db', apps=apps) as bb:\n"
        f"        await bb.start_worker()\n{body}\n"
        "asyncio.run(main())\n"
    )

    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    assert "4\n" == told.stdout


ASKING = """
import asyncio
from datetime import timedelta
from backburner import *
from pydantic import BaseModel

class Text(BaseModel):
    text: str

"""
SPENDING = """
async def main():
    async with Backburner(store="sqlite:///jobs.db", apps=[app]) as bb:
        await bb.start_worker()
        tickets = [await bb.submit(summarise, Text(text="it")) for _ in range(2)]
        print([(await ticket.result())["title"] for ticket in tickets])
        [(_, limit, balance)] = await bb.budgets.accounts()
        print(limit, balance.settled, balance.held)

asyncio.run(main())
"""


def test_the_spending_of_the_readme_is_counted(tmp_path):
    [block] = [found for found in PYTHON.findall(README) if "Budget(" in found]

    told = subprocess.run(
        [sys.executable, "-c", ASKING + block + SPENDING],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    assert "['it', 'it']\n100000 170 0\n" == told.stdout


def test_the_first_capability_of_the_readme_runs_inside_a_program(tmp_path):
    first, inside = PYTHON.findall(README)[:2]
    (tmp_path / "words.py").write_text(first)
    (tmp_path / "program.py").write_text(
        "import asyncio\n"
        "from backburner import Backburner\n"
        "from words import Text, app, count_words\n"
        "async def main():\n"
        + "".join(f"    {line}\n" for line in inside.splitlines())
        + "asyncio.run(main())\n"
    )

    told = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    assert "{'words': 3}" in told.stdout


def test_the_first_capability_has_at_most_fifteen_lines_of_code():
    first = PYTHON.findall(README)[0]

    assert 15 >= len([line for line in first.splitlines() if line.strip()])
