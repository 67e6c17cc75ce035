"""The tool that starts the servers: it keeps to what it started, and tidies up."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

OURS = Path(__file__).parents[2] / "tools" / "services"
URL = "BACKBURNER_TEST_REDIS_URL"
MINUTE = 60


@pytest.fixture
def no_servers_given():
    """Return an environment that names no server and no Docker engine."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BACKBURNER_TEST_")}
    return kept | {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}


@pytest.fixture
def redis_is_installed():
    if shutil.which("redis-server"):
        return
    if os.environ.get("CI") == "true":
        pytest.fail("redis-server is not installed")
    pytest.skip("redis-server is not installed: `make test` installs it")


@pytest.fixture
def script(tmp_path):
    """Return the tool in a project of its own: nobody else tidies up there."""
    (tmp_path / "tools").mkdir()
    return shutil.copy(OURS, tmp_path / "tools")


@pytest.fixture
def services(script):
    def run(*words, env):
        return subprocess.run(
            [sys.executable, script, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=MINUTE,
            env=env,
        )

    return run


def python(program):
    return [sys.executable, "-c", program]


def the_pids_told_in(text):
    return [int(pid) for pid in re.findall(r"\(pid (\d+)\)", text)]


def is_running(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def wait_for_the_end_of(pid):
    """Wait until the kernel says the process has ended, a minute at most."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([handle], [], [], MINUTE)
    finally:
        os.close(handle)
    assert ended


def test_a_server_named_by_its_url_is_used_as_it_is(services, no_servers_given):
    print_url = python(f"import os; print(os.environ['{URL}'])")

    done = services(
        *("run", "--only", "redis", "--", *print_url),
        env=no_servers_given | {URL: "redis://elsewhere:1/2"},
    )

    assert "redis://elsewhere:1/2\n" == done.stdout
    assert [] == the_pids_told_in(done.stderr)
    assert 0 == done.returncode


@pytest.mark.usefixtures("redis_is_installed")
def test_a_command_that_fails_gives_its_code_and_leaves_nothing(
    services, no_servers_given
):
    fail = python(f"import os; print(os.environ['{URL}']); raise SystemExit(7)")

    done = services("run", "--only", "redis", "--", *fail, env=no_servers_given)

    (pid,) = the_pids_told_in(done.stderr)
    assert 7 == done.returncode
    assert re.fullmatch(r"redis://127\.0\.0\.1:\d+/0\n", done.stdout)
    assert not is_running(pid)


def test_a_command_that_is_not_there_is_reported(services, no_servers_given):
    done = services(
        *("run", "--only", "redis", "--", "no-such-command"),
        env=no_servers_given | {URL: "redis://elsewhere:1/2"},
    )

    assert 127 == done.returncode
    assert "cannot run no-such-command" in done.stderr


def test_a_server_that_cannot_be_had_leaves_its_variable_unset(
    services, no_servers_given
):
    ask = python(f"import os; print('{URL}' in os.environ)")

    done = services(
        *("run", "--only", "redis", "--", *ask),
        env=no_servers_given | {"PATH": "/nonexistent"},
    )

    assert "False\n" == done.stdout
    assert "services: no redis: redis-server is not installed\n" == done.stderr


@pytest.mark.usefixtures("redis_is_installed")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_then_the_server(
    number, script, no_servers_given
):
    wait = python("import signal; print('waiting', flush=True); signal.pause()")
    with subprocess.Popen(
        [sys.executable, script, "run", "--only", "redis", "--", *wait],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=no_servers_given,
    ) as tool:
        tool.stdout.readline()
        tool.send_signal(number)
        _, told = tool.communicate(timeout=MINUTE)

    (pid,) = the_pids_told_in(told)
    assert 128 + number == tool.returncode
    assert not is_running(pid)


@pytest.mark.usefixtures("redis_is_installed")
def test_what_a_killed_run_left_is_tidied_by_the_next(
    services, script, no_servers_given
):
    wait = python("import sys; print('waiting', flush=True); sys.stdin.read()")
    with subprocess.Popen(
        [sys.executable, script, "run", "--only", "redis", "--", *wait],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=no_servers_given,
    ) as tool:
        tool.stdout.readline()
        tool.kill()
        tool.stdin.close()
        (pid,) = the_pids_told_in(tool.stderr.read())

    left_behind = is_running(pid)
    done = services(
        *("run", "--only", "redis", "--", "true"),
        env=no_servers_given | {URL: "redis://elsewhere:1/2"},
    )
    wait_for_the_end_of(pid)

    assert left_behind
    assert f"tidying up after run {tool.pid}\n" in done.stderr


@pytest.mark.usefixtures("redis_is_installed")
def test_in_memory_the_folders_of_tests_are_there_too(services, no_servers_given):
    memory, key = Path("/dev/shm"), "PYTEST_DEBUG_TEMPROOT"  # noqa: S108 - the tool's
    show = python(f"import os; print(os.environ.get('{key}'))")
    given = {k: v for k, v in no_servers_given.items() if k != key}
    done = services("run", "--in-memory", "--only", "redis", "--", *show, env=given)

    stats = os.statvfs(memory)
    has_room = stats.f_bavail * stats.f_frsize >= 4 << 30
    assert f"{memory if has_room else None}\n" == done.stdout, done.stderr
