"""A log that cannot be written does not stop the work."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("speaking_to_nobody.py")
CLOSED = ("/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh")


@pytest.fixture
def answer(tmp_path):
    return tmp_path / "answer"


@pytest.fixture
def run(path, answer):
    """Run the script with nowhere to log to."""

    def run(how, *, through=(), stderr=None):
        # -u: what Python itself holds back, it tries to write again at its exit.
        command = [sys.executable, "-u", SCRIPT, f"sqlite:///{path}", answer, how]
        ran = subprocess.run(
            [*through, *command], check=False, timeout=60, stdout=stderr, stderr=stderr
        )
        return ran.returncode

    return run


@pytest.fixture
def full():
    """A device that takes nothing."""
    with Path("/dev/full").open("w") as device:
        yield device


@pytest.mark.parametrize("how", ["configured", "unconfigured"])
def test_a_log_on_a_full_disk_does_not_stop_settling(run, answer, full, how):
    code = run(how, stderr=full)

    assert ["failed", *["succeeded"] * 8] == answer.read_text().split()
    assert 0 == code


@pytest.mark.parametrize("how", ["configured", "unconfigured"])
def test_a_log_that_is_closed_does_not_stop_settling(run, answer, how):
    code = run(how, through=CLOSED)

    assert ["failed", *["succeeded"] * 8] == answer.read_text().split()
    assert 0 == code
