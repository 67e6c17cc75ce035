"""A forked program is like one that was started: only its imports are not its own."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests import warm

ENVIRON = dict(os.environ)  # noqa: TID251 - what programs start in
WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture(params=["forked", "executed"])
def python(request, monkeypatch):
    """Run a line of Python, in both ways: what holds for one holds for the other."""
    monkeypatch.setattr(warm.WARM, "is_off", request.param == "executed")

    def run(code, *arguments, **how):
        command = [sys.executable, "-c", code, *arguments]
        return warm.run(command, capture_output=True, text=True, timeout=60, **how)

    return run


@pytest.fixture(params=["forked", "executed"])
def waiting(request, monkeypatch):
    """Start a program that waits for the end of its input."""
    monkeypatch.setattr(warm.WARM, "is_off", request.param == "executed")
    started = []

    def start(code=WAITS, **how):
        process = warm.Popen(
            [sys.executable, "-c", code], stdin=warm.PIPE, stdout=warm.PIPE, **how
        )
        started.append(process)
        assert (request.param == "forked") == process.is_forked
        assert b"ready\n" == process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_program_takes_input_and_arguments_and_returns_its_exit_code(python):
    code = "import sys; print(sys.argv, sys.stdin.read()); sys.exit(5)"
    ended = python(code, "a", "b c", input="given")

    assert (5, "['-c', 'a', 'b c'] given\n") == (ended.returncode, ended.stdout)


def test_an_error_that_nobody_catches_is_told_and_is_exit_code_1(python):
    ended = python("raise ValueError('that')")

    assert 1 == ended.returncode
    assert ended.stderr.endswith("ValueError: that\n")


def test_a_text_to_exit_with_is_told_and_is_exit_code_1(python):
    ended = python("import sys; sys.exit('why')")

    assert (1, "why\n") == (ended.returncode, ended.stderr)


def test_output_that_cannot_be_written_is_told(python):
    ended = python(
        "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('x')"
    )

    assert (1 if ENVIRON.get("PYTHONUNBUFFERED") else 120) == ended.returncode
    assert "No space left on device" in ended.stderr


def test_a_thread_that_is_no_daemon_is_waited_for(python):
    code = (
        "import threading as t, time; e = t.Event(); t.Timer(0.1, print, ['x']).start()"
    )

    assert "x\n" == python(code).stdout


def test_the_environment_and_the_folder_are_its_own(python, tmp_path):
    code = "import os; print(os.environ.get('GIVEN'), os.environ.get('HOME'))"
    ended = python(code + "; print(os.getcwd())", env={"GIVEN": "x"}, cwd=tmp_path)

    assert f"x None\n{tmp_path}\n" == ended.stdout


def test_the_dice_are_its_own(python):
    code = "import random, secrets; print(random.random(), secrets.token_hex())"

    assert python(code).stdout != python(code).stdout


def test_what_runs_at_exit_runs(python):
    ended = python("import atexit; atexit.register(print, 'bye')")

    assert "bye\n" == ended.stdout


def test_it_is_a_child_of_this_process(waiting):
    process = waiting("import os, sys; print('ready', flush=True); sys.stdin.read()")

    stat = Path(f"/proc/{process.pid}/stat").read_text()
    assert os.getpid() == int(stat.rpartition(")")[2].split()[1])
    assert os.getpgid(0) == os.getpgid(process.pid)


def test_a_session_of_its_own_if_asked_for(waiting):
    process = waiting(start_new_session=True)

    assert process.pid == os.getsid(process.pid) == os.getpgid(process.pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_is_its_exit_code(waiting, number):
    process = waiting(stderr=warm.DEVNULL)
    process.send_signal(number)

    assert -number == process.wait(60)


def test_a_stopped_one_goes_on(waiting):
    process = waiting()
    process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    process.stdin.close()
    process.stdin = None

    assert 0 == process.wait(60)


def test_no_file_of_ours_is_open_in_it(waiting):
    process = waiting()

    files = Path(f"/proc/{process.pid}/fd").iterdir()
    assert {"0", "1", "2"} == {file.name for file in files}


@pytest.mark.parametrize(
    "env", [{"LD_PRELOAD": ""}, {"PYTHONHASHSEED": "1"}, {"LC_ALL": "C"}]
)
def test_what_is_read_at_the_start_is_executed(env):
    forks = not any(env.values())
    command = [sys.executable, "-c", "import sys; sys.exit('asyncpg' in sys.modules)"]
    known = {k: v for k, v in ENVIRON.items() if k not in env}
    with warm.Popen(command, env=known | env) as process:
        assert forks == process.is_forked
        assert forks == process.wait(60)


@pytest.mark.executed
def test_a_test_may_ask_for_true_starts():
    with warm.Popen([sys.executable, "-c", "pass"]) as process:
        assert not process.is_forked
