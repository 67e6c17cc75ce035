"""No child process outlives its parent or a caller that was cancelled."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import psutil
import pytest
import uvloop

from backburner_extractors import ExtractionError, Limits, extract
from tests.extractors.documents import FOLDER

WAIT = 60
PARENT = """
import asyncio, sys
from pathlib import Path
from backburner_extractors import extract, process
if len(sys.argv) > 2:
    process.COMMAND = (sys.executable, "-P", "-c", sys.argv[2])
asyncio.run(extract(Path(sys.argv[1])))
"""
BLOCKING = "echo $$ $PPID >{pipe}; exec sleep 1000"
"""Tells its process id and its parent's, then does nothing."""
CARELESS = (
    "from backburner_extractors import child, ocr;"
    "child.die_with = ocr.die_with_parent = lambda *ids: None; child.main()"
)
"""A child process that does not ask the kernel to end it with its parent."""


@pytest.fixture
def blocked(tesseract, tmp_path):
    """A pipe that says which processes read an image when they have started."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tesseract(BLOCKING.format(pipe=pipe))
    return pipe


def processes(pipe):
    """Wait for tesseract's start; return it and the child that started it."""
    return [psutil.Process(int(number)) for number in pipe.read_text().split()]


def has_ended(process):
    try:
        process.wait(WAIT)
    except psutil.TimeoutExpired:
        return False
    return True


def started_parent(*command):
    path = str(FOLDER / "scan.png")
    return subprocess.Popen([sys.executable, "-c", PARENT, path, *command])


def test_a_killed_parent_leaves_no_process(blocked):
    parent = started_parent()
    both = processes(blocked)
    parent.kill()
    assert parent.wait(WAIT) == -signal.SIGKILL
    assert all(has_ended(process) for process in both)


def test_control_without_the_kernels_help_both_live_on(blocked):
    parent = started_parent(CARELESS)
    both = processes(blocked)
    parent.kill()
    parent.wait(WAIT)
    alive = [process.is_running() for process in both]
    for process in both:
        process.kill()
    assert alive == [True, True]


async def test_a_cancelled_caller_kills_the_child_and_its_tesseract(blocked):
    reading = asyncio.create_task(extract(FOLDER / "scan.png"))
    both = await asyncio.to_thread(processes, blocked)
    assert all(process.is_running() for process in both)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    for process in both:
        assert await asyncio.to_thread(has_ended, process)


async def test_a_caller_that_is_cancelled_at_once_starts_nothing_that_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reading = asyncio.create_task(extract(tmp_path / "pipe"))
    await asyncio.wait([reading], timeout=0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it has ended: a zombie has no command
            if "backburner_extractors.child" in " ".join(child.cmdline()):
                assert await asyncio.to_thread(has_ended, child)


def test_it_works_under_uvloop_and_beside_other_loops():
    path = FOLDER / "leitfaden.txt"
    texts = []
    thread = threading.Thread(
        target=lambda: texts.append(asyncio.run(extract(path)).text)
    )
    thread.start()
    texts.append(uvloop.run(extract(path)).text)
    thread.join(WAIT)
    assert len(texts) == 2
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('no JSON')", "EXTRACTOR_CRASHED"),
        ("print('[]')", "EXTRACTOR_CRASHED"),
        ("""print('["page", 1, 2')""", "EXTRACTOR_CRASHED"),
        ("""print('["page", 1, "book", ""]')""", "EXTRACTOR_CRASHED"),
        ("""print('["end", "text/x", [], "none"]')""", "EXTRACTOR_CRASHED"),
        ("""print('["end", "text/html", [1], "none"]')""", "EXTRACTOR_CRASHED"),
        ("pass", "EXTRACTOR_CRASHED"),
        ("""print('["error", "ODD", "x"]')""", "EXTRACTOR_CRASHED"),
        ("import os; os.abort()", "EXTRACTOR_CRASHED"),
        ("import os; os.kill(os.getpid(), 24)", "TIMED_OUT"),
        ("raise MemoryError", "OUT_OF_MEMORY"),
        ("while True: print('x' * 9999, end='')", "TEXT_TOO_LARGE"),
    ],
)
async def test_whatever_a_child_says_the_parent_goes_on(code, reason, monkeypatch):
    command = (sys.executable, "-S", "-c", f"import sys; sys.stdin.read(); {code}")
    if "while" in code:
        command = (sys.executable, "-S", "-c", code)
    monkeypatch.setattr("backburner_extractors.process.COMMAND", command)
    with pytest.raises(ExtractionError) as refusal:
        await extract(FOLDER / "leitfaden.txt", limits=Limits(max_text_chars=9_999))
    assert refusal.value.code == reason


async def test_a_child_gets_no_secrets(tesseract, monkeypatch):
    """The script's environment is the text that it reads in the image."""
    monkeypatch.setenv("BACKBURNER_SECRET", "hunter2")
    tesseract("env")
    text = (await extract(FOLDER / "scan.png")).text
    assert "OMP_THREAD_LIMIT=1" in text
    assert "hunter2" not in text
