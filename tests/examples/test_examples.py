"""Every example runs, and shows what it says."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from backburner.client import Client
from tests import warm

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 60


def the_output_of(name, cwd):
    ended = warm.run(
        [sys.executable, EXAMPLES / name],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    return ended.stdout


@contextmanager
def a_server_of(app, folder):
    """Serve an example as its first line says; yield where."""
    arguments = ("serve", "--dev", "--port", "0", "--app", app)
    store = ("--store", f"sqlite:///{folder}/jobs.db")
    with warm.Popen(
        [sys.executable, "-m", "backburner", *arguments, *store],
        cwd=EXAMPLES,
        stderr=warm.PIPE,
        text=True,
    ) as server:
        ready = next(line for line in server.stderr if " is ready at " in line)
        yield ready.split()[-1]
        server.terminate()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("submit_and_wait.py", "Hello, Ada!"),
        ("exactly_once_write.py", "succeeded after 2 attempts, 1 row"),
        ("fan_out.py", "join: A TICKET NOW"),
    ],
)
def test_an_example_shows_what_it_says(tmp_path, name, shown):
    assert shown in the_output_of(name, tmp_path)


def test_the_table_of_examples_names_each_of_them():
    named = re.findall(
        r"^\| `([^`]+)` \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE
    )
    there = {
        f"{entry.name}/" if entry.is_dir() else entry.name
        for entry in EXAMPLES.iterdir()
        if not entry.name.startswith(("README", "__", "."))
    }

    assert there == {*named}


@pytest.mark.executed
def test_the_first_capability_counts_words(tmp_path):
    with (
        a_server_of("first_capability:app", tmp_path) as url,
        Client(url) as client,
    ):
        job = client.submit("count-words", {"text": "a ticket now"})
        ended = client.wait(job["id"])

    assert {"words": 3} == ended["output"]


def test_every_example_is_short_and_run_by_a_test():
    lengths = {
        path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")
    }

    assert [
        "approval.py",
        "durable_steps.py",
        "exactly_once_write.py",
        "fan_out.py",
        "first_capability.py",
        "gateway_bot.py",
        "openai_agents_sdk.py",  # test_agents.py
        "pydantic_ai_agent.py",  # test_agents.py
        "submit_and_wait.py",
    ] == sorted(lengths)
    bot = lengths.pop("gateway_bot.py")  # tests/apps/chat/discord/test_gateway_bot.py
    assert max(lengths.values()) < 60
    assert bot < 80


def test_approval(tmp_path):
    told = the_output_of("approval.py", tmp_path)
    assert "order 42: a lamp for 30, sent: yes" == told.strip()


def test_durable_steps(tmp_path):
    told = the_output_of("durable_steps.py", tmp_path).splitlines()
    assert ["sent as number 1 by attempt 2", "2 model calls, sent 1 time"] == told
