"""Agents of other frameworks inside handlers, killed midway and resumed."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from backburner import Backburner, Settings
from backburner.domain.jobs.job import JobState
from tests import warm

pytestmark = pytest.mark.thorough

EXAMPLES = Path(__file__).parents[2] / "examples"
SDK = "openai_agents_sdk"
AGENTS = Path(sys.prefix) / "agents"
"""Where `tools/setup test` installs the OpenAI Agents SDK, apart from the product."""
SHORT = {
    "BACKBURNER_LEASE_SECONDS": "1.5",
    "BACKBURNER_BEAT_SECONDS": "0.3",
    "BACKBURNER_POLL_SECONDS": "0.3",
}


@pytest.fixture
def path(tmp_path, template):
    return shutil.copy(template, tmp_path / "jobs.db")


@pytest.fixture
def worker(aimock, monkeypatch, home_url):
    """Start workers that know an example and ask the fake LLM server."""
    for name, value in SHORT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BACKBURNER_STORE", home_url)
    monkeypatch.setenv("OPENAI_BASE_URL", aimock.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    started = []

    def start(module, fault=None):
        with monkeypatch.context() as patch:
            if fault is not None:
                patch.setenv("BACKBURNER_FAULT", fault)
            if module.startswith(SDK):
                patch.setenv("PYTHONPATH", str(AGENTS))
            words = [sys.executable, "-m", "backburner", "worker", "--app", module]
            started.append(warm.Popen(words, cwd=EXAMPLES, stderr=warm.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["pydantic_ai_agent", SDK])
async def test_an_agent_that_is_killed_midway_repeats_no_call(
    aimock, worker, home_url, monkeypatch, name
):
    aimock.reset()
    aimock.answers("Go by train.", toolResultContains="sunny in Rome")
    call = {"name": "weather", "arguments": '{"city": "Rome"}'}
    aimock.add({"toolCalls": [call]}, "Rome")
    monkeypatch.syspath_prepend(EXAMPLES)
    if name == SDK:
        if not AGENTS.exists():  # in CI, tools/setup fails
            pytest.skip("tools/setup could not install the OpenAI Agents SDK")
        monkeypatch.setattr(sys, "path", [*sys.path, str(AGENTS)])
    app = __import__(name).app
    async with Backburner(Settings(store=home_url), apps=[app]) as backburner:
        ticket = await backburner.submit("plan-trip", "How do I get to Rome?")
        killed = worker(f"{name}:app", fault="step.stored:1")
        code = await asyncio.to_thread(killed.wait, 60)
        assert (code != 0, 1) == (True, len(aimock.requests()))
        worker(f"{name}:app")
        job = await ticket.wait(60)
        spent = (await backburner.engine.store.spent([job.seq]))[job.seq]
        steps = await backburner.engine.steps_of(job.seq)

    assert (JobState.SUCCEEDED, '"Go by train."') == (job.state, job.output)
    assert (1, 2) == (job.crashes, len(aimock.requests()))
    assert ["model call 1", "model call 2"] == [step.name for step in steps]
    assert 2 == spent.calls
