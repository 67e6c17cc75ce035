"""The CPU report counts a test's own time and that of processes it started."""

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
BUSY = "import time\nwhile time.process_time() < 0.3: pass"
PROGRAM = f"""
import subprocess, sys, time

def test_works_itself():
    until = time.process_time() + 0.3
    while time.process_time() < until: pass

def test_has_a_process_work():
    subprocess.run([sys.executable, "-S", "-c", {BUSY!r}], check=True)

def test_waits():
    time.sleep(0.3)

def test_leaves_a_process_behind():
    busy = subprocess.Popen(
        [sys.executable, "-S", "-c", {BUSY!r} + "\\nprint(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    busy.stdout.readline()
"""


def test_what_a_test_and_its_processes_take_is_told(tmp_path):
    (tmp_path / "test_it.py").write_text(PROGRAM)
    options = ["-p", "tests.cpu", "-p", "no:cacheprovider", "--cpu-report", "cpu.jsonl"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        check=True,
    )
    lines = (tmp_path / "cpu.jsonl").read_text().splitlines()
    told = {
        line["test"].partition("::")[2]: line["cpu"] for line in map(json.loads, lines)
    }

    assert told["test_works_itself"] > 0.25
    assert told["test_has_a_process_work"] > 0.25
    assert told["test_leaves_a_process_behind"] > 0.25
    assert told["test_waits"] < 0.2, "control: to wait takes no CPU time"
