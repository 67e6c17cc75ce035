"""The commands of empty views are run as they are printed, against a real server."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import the_environment
from tests.http.ui.conftest import a_dashboard

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.one_store]

VIEWS = (
    *("overview", "jobs", "flows", "batches", "questions", "incidents", "lanes"),
    *("cost", "fleet"),
)
COMMANDS = "[...document.querySelectorAll('.command code')].map(one => one.textContent)"
ENOUGH = {"fleet": 3}
"""How many empty tables a view has: schedules, deliveries and endpoints."""


async def collect(dashboard):
    """Return the commands of all views of an empty server."""
    found = {}
    for view in VIEWS:
        await dashboard.visit(view)
        expected = ENOUGH.get(view, 1)
        found[view] = await dashboard.tab.until(
            f"{COMMANDS}.length === {expected} && {COMMANDS}"
        )
        assert "BACKBURNER_API_KEY" in await dashboard.tab.evaluate(
            "document.body.innerText"
        ), view
        await dashboard.check(f"empty {view}")
    return found


async def run(command, key, folder):
    """Run a command in a shell of its own, without the settings of the tests."""
    settings = the_environment(BACKBURNER_API_KEY=key)
    path = os.pathsep.join([str(Path(sys.executable).parent), settings["PATH"]])
    process = await asyncio.create_subprocess_exec(
        shutil.which("bash"),
        *("-o", "pipefail", "-c", command),
        cwd=folder,
        env={**settings, "PATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_the_commands_of_empty_views_work_as_they_are_printed(
    tmp_path,
    axe,  # noqa: ARG001 - it may skip
):
    async with a_dashboard(f"sqlite:///{tmp_path}/jobs.db") as dashboard:
        key = await dashboard.key("platform-administrator", tenant="default")
        await dashboard.log_in(key=key)
        found = await collect(dashboard)
        for view, commands in found.items():
            for command in commands:
                code, output = await run(command, key[1], tmp_path)
                assert 0 == code, (view, command, output)
        dashboard.check_quiet()
        await dashboard.visit("jobs")
        await dashboard.shows("demo.echo", "[aria-label=Jobs]")
        await dashboard.visit("fleet")
        await dashboard.shows("nightly", "[aria-label=Schedules]")
        await dashboard.shows("https://example.com", "[aria-label=Endpoints]")
