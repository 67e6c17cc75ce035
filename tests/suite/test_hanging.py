"""A test that hangs fails and is named, and the other tests still run."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
WAITS = """
import asyncio, time

async def test_waits_for_ever():
    await asyncio.Event().wait()

def test_is_well():
    pass
"""
CLINGS = """
import threading

def test_cannot_be_ended():
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass

def test_is_well():
    pass
"""


def run(folder, program, *options):
    (folder / "test_it.py").write_text(program)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.hanging", "test_it.py"),
            *(
                "-o",
                "asyncio_mode=auto",
                "--hang-seconds",
                "1",
                "-p",
                "no:cacheprovider",
            ),
            *options,
        ],
        cwd=folder,
        env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_hanging_test_fails_and_the_next_runs(tmp_path):
    ended = run(tmp_path, WAITS)

    assert 1 == ended.returncode
    assert "the test hangs: it was ended after 1 seconds" in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout


def test_a_test_that_cannot_be_ended_ends_its_process_by_name(tmp_path):
    ended = run(tmp_path, CLINGS, "-n", "1")

    assert 1 == ended.returncode
    assert "crashed while running 'test_it.py::test_cannot_be_ended'" in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout
