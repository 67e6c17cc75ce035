"""`backburner documents …` as processes, against a server, at a terminal and not."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.cli.conftest import COMMAND, SECONDS, Server, _all_of, the_environment

TEXTS = {
    "manual.md": b"# Pump\n\nThe pump moves 40 litres of water per minute.\n",
    "warranty.txt": b"The warranty lasts two years. Returns are free.\n",
    "empty.txt": b"",
}
PAGE = Path(__file__).parents[3] / "docs" / "documents-browser.md"
PROMISED = (
    "Batch completed: 2/2 files processed",
    "manual.md",
    "The warranty lasts two years. [1]",
    "[1] warranty.txt: The warranty lasts two years.",
    "event: job.output.delta",
    '"unsupported":false',
)
NOTICE = "Batch completed: 2/2 files processed"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server with a worker, shared by the tests of this file."""
    env = {"BACKBURNER_APPS": "documents"}
    server = Server("--port", "0", cwd=tmp_path_factory.mktemp("serve"), env=env)
    yield server.url
    server.end()


@pytest.fixture
def folder(tmp_path):
    for name, content in TEXTS.items():
        tmp_path.joinpath(name).write_bytes(content)
    return tmp_path


@pytest.fixture
def call(folder, url):
    """Run a command of documents to its end; return how it ended."""

    def run(*words, server=url):
        return warm.run(
            [*COMMAND, "documents", *words],
            cwd=folder,
            env=the_environment(BACKBURNER_URL=server),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


@pytest.fixture
def at_a_terminal(folder, url):
    """Run a command with stderr at a terminal; return code, stdout and that."""

    def run(*words):
        ours, theirs = pty.openpty()
        started = warm.Popen(
            [*COMMAND, "documents", *words],
            cwd=folder,
            env=the_environment(BACKBURNER_URL=url, TERM="xterm", COLUMNS="120"),
            stdout=warm.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        seen = _all_of(ours)
        out, _ = started.communicate(timeout=SECONDS)
        os.close(ours)
        return started.returncode, out, seen

    return run


@pytest.mark.one_store
def test_files_are_uploaded_and_watched_with_bars_then_searched_and_asked(
    at_a_terminal, call
):
    code, out, seen = at_a_terminal("upload", "manual.md", "warranty.txt", "--watch")

    assert 0 == code, seen
    rows = [line.split("\t") for line in out.splitlines()]
    assert [("ready", "manual.md"), ("ready", "warranty.txt")] == [
        tuple(row[1:3]) for row in rows
    ]
    for word in ("batch of 2", "manual.md", "warranty.txt", "100%", NOTICE):
        assert word in seen
    assert re.search("[━╸]", seen), "bars were drawn"
    assert "\x1b" not in out

    found = call("search", "warranty")
    assert (0, "warranty.txt") == (found.returncode, found.stdout.split("\t")[1])
    asked = call("ask", "How long does the warranty last?")
    answer, source = asked.stdout.splitlines()
    assert "The warranty lasts two years. [1]" == answer
    assert source.startswith("[1] warranty.txt: The warranty lasts two years.")
    batch = re.search(r"batch (uploads_\S+)", seen)[1]
    told = json.loads(call("ask", "Who won?", "--batch", batch, "--json").stdout)
    assert ("", [], True) == (told["text"], told["sources"], told["unsupported"])
    unsupported = call("ask", "Who won the football match?")
    assert (0, "\n") == (unsupported.returncode, unsupported.stdout)
    assert "do not contain the answer" in unsupported.stderr
    told = json.loads(call("search", "pump", "--limit", "1", "--json").stdout)
    assert ["manual.md"] == [hit["fileName"] for hit in told["results"]]


@pytest.mark.one_store
def test_without_a_terminal_there_are_no_bars_and_json_is_one_line(call):
    ran = call("upload", "manual.md", "empty.txt", "--watch", "--json")
    told = json.loads(ran.stdout)

    assert 1 == ran.returncode, ran.stderr
    assert ["ready", "failed"] == [file["status"] for file in told["files"]]
    assert "error" in told["files"][1]
    assert "Batch completed: 1/2 files processed" in ran.stderr
    assert "1 of 2 files failed" in ran.stderr
    assert "━" not in ran.stderr
    ran = call("upload", "manual.md")
    assert (0, "queued") == (ran.returncode, ran.stdout.split("\t")[1])


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("code", "words", "told"),
    [
        (2, ("upload", "nothing.txt"), "nothing.txt is not a file"),
        (2, ("upload", "."), "is not a file"),
        (2, ("search", "x" * 1001), "at most 1000"),
        (2, ("ask", "x" * 2001), "question"),
        (3, ("ask", "x", "--batch", "uploads_none"), "the batch does not exist"),
    ],
)
def test_a_refusal_has_its_exit_code(call, code, words, told):
    ran = call(*words)

    assert (code, "") == (ran.returncode, ran.stdout), ran.stderr
    assert told in ran.stderr
    assert 1 == len(ran.stderr.splitlines())


@pytest.mark.one_store
def test_no_server_is_said_in_one_line(call):
    ran = call("upload", "manual.md", server="http://127.0.0.1:1")

    assert 7 == ran.returncode
    assert "cannot be reached" in ran.stderr


@pytest.mark.thorough
@pytest.mark.one_store
def test_the_documented_commands_do_what_the_page_says(folder, url):
    text = PAGE.read_text()
    block = re.search(r"<!-- walkthrough -->\n```sh\n(.*?)```", text, re.DOTALL)[1]
    environment = the_environment(BACKBURNER_URL=url)
    path = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ran = subprocess.run(
        ["/bin/sh", "-eu", "-c", block],
        cwd=folder,
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert 0 == ran.returncode, ran.stderr
    said = ran.stdout + ran.stderr
    for line in PROMISED:
        assert f"# {line}" in block
        assert line in said, line
