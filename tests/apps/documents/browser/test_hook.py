"""The React hook and the types of the events, by React and by the compiler."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.apps.chat.discord import node as discord

PAGES = Path(__file__).parents[4] / "src/backburner_apps/documents/pages"
REACT = Path(__file__).parents[4] / "tools/react/node_modules"
COMPILER = discord.HOME / "typescript" / "bin" / "tsc"
WORDS = (
    *("--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom"),
    "--skipDefaultLibCheck",
    *("--module", "nodenext", "--moduleResolution", "nodenext", "--pretty", "false"),
)
MOST_LINES = 40
USE = """
import {useFileProcessingEvents, type FileProcessingEvent, followBatch}
  from "./file-processing-events.js"
import {useFileProcessingEvents as useEvents} from "./use-file-processing-events.js"

const events = useFileProcessingEvents("b1", {url: "https://api.example",
  token: async () => "t", onEvent: read})
const stop: () => void = events.subscribe(() => events.getSnapshot().notices[0]?.text)
followBatch("b1", {after: 7}).close()
const total: number | undefined = useEvents("b1").summary?.total
function read(event: FileProcessingEvent): string {
  switch (event.type) {
    case "file:status-changed": return event.data.to + event.data.error
    case "file:processing-stalled": return event.data.stage + event.data.retryCount
    case "batch:progress": return `${event.data.ready} ${event.data.extracting}`
    case "batch:completed": return `${event.data.summary.failed}`
    case "reset": return `${event.data.after}`
  }
}
export {stop, total}
"""
MISTAKES = """
import {useFileProcessingEvents, type FileProcessingEvent}
  from "./file-processing-events.js"
const state = useFileProcessingEvents("b1").getSnapshot()
export const number: number = state.notices[0].text
export const wrong = useFileProcessingEvents(7)
export const read = (event: FileProcessingEvent) => event.data.summary
"""


@pytest.fixture
def folder(tmp_path):
    """The modules as an application has them beside React."""
    if not (REACT / ".bin" / "node").exists():
        missing = "React is not installed: run the tests by `make test`"
        is_ci = os.environ.get("CI")  # noqa: TID251 - there nothing may be missing
        pytest.fail(missing) if is_ci else pytest.skip(missing)
    for file in PAGES.glob("*file-processing-events*"):
        shutil.copy(file, tmp_path)
    tmp_path.joinpath("package.json").write_text('{"type": "module"}')
    tmp_path.joinpath("node_modules").symlink_to(REACT)
    return tmp_path


def test_the_hook_renders_what_is_published(folder):
    test = Path(__file__).with_name("hook.test.mjs")
    ran = subprocess.run(
        [REACT / ".bin" / "node", "--test", shutil.copy(test, folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
    )

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert "# pass 2" in ran.stdout


def test_the_events_are_typed_and_the_compiler_finds_mistakes(folder):
    good, bad = folder / "use.ts", folder / "mistakes.ts"
    good.write_text(USE)
    bad.write_text(MISTAKES)
    ran = discord.run(COMPILER, *WORDS, good, bad)
    found = [line for line in ran.stdout.splitlines() if "error TS" in line]

    assert 3 == len(found), ran.stdout + ran.stderr
    assert all("mistakes.ts" in line for line in found), "no other file has any"


def test_the_hook_is_short():
    hook = PAGES / "use-file-processing-events.js"

    assert len(hook.read_text().splitlines()) <= MOST_LINES
