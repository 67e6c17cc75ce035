"""`backburner top` against a server, once and at a real terminal."""

import os
import pty
import subprocess

import pytest

from tests.cli.conftest import COMMAND, SECONDS
from tests.cli.screen import shown

pytestmark = pytest.mark.one_store


def until(terminal, wanted):
    """Read what a terminal is sent until it has shown a text."""
    seen = ""
    while wanted not in seen:
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


def test_one_frame_shows_queues_workers_lanes_and_failures(ask):
    value = '{"error": "permanent", "times": 1}'
    ask("submit", "demo.fail", value, "--wait")

    frame = ask("top", "--once")

    assert 0 == frame.returncode, frame.stderr
    for part in ("Queues", "Workers", "Lanes", "Dead letters", "demo.fail", "working"):
        assert part in frame.stdout, part


def test_a_narrow_frame_cuts_neither_numbers_nor_states(url, client, at_a_terminal):
    (worker,) = client.workers()

    _, seen = at_a_terminal("top", "--once", "--url", url, both=True, COLUMNS="50")

    row = next(line for line in shown(seen) if "working" in line).split()
    assert {str(worker["pid"]), str(worker["slots"]), "working"} <= {*row}


def test_a_live_view_ends_with_q_and_leaves_the_terminal_as_it_was(url, tmp_path):
    ours, theirs = pty.openpty()
    popen = subprocess.Popen(
        [*COMMAND, "top", "--every", "0.5", "--url", url],
        cwd=tmp_path,
        env={"PATH": os.defpath, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    first = until(ours, "Dead letters")
    until(ours, "Dead letters")
    os.write(ours, b"q")
    last = until(ours, "\x1b[?1049l")
    popen.communicate(timeout=SECONDS)
    os.close(ours)

    assert "\x1b[?1049h" in first
    assert "\x1b[?25h" in last
    assert 0 == popen.returncode


def test_a_server_that_is_away_is_said_at_once(run):
    ended = run("top", "--once", "--url", "http://127.0.0.1:9")

    assert 7 == ended.returncode
