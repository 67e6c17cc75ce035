"""
Start Python programs as `subprocess` does, but without waiting for their imports.

To import the product takes more than a second of CPU time, and the tests start hundreds
of processes. `Popen` and `run` take what those of `subprocess` take. Where the command
is this Python, the process is forked from one that has imported everything
(`tests/zygote.py`) and becomes a child of this process; its signals, exit code,
session, environment, folder and files are its own. It is executed where a fork would
differ from a true start (another program, a library to preload, variables that Python
reads as it starts) and in tests that are marked `executed`.
"""

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
ZYGOTE = Path(__file__).with_name("zygote.py")
AT_START = ("PYTHON", "LD_", "LANG", "LC_", "MALLOC_", "OPENSSL_", "SSL_")
"""Variables that are read when a program starts; a fork is too late for others."""
NOT_HANDED_ON = ("BACKBURNER_", "COVERAGE_")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""Else NumPy starts threads when it is imported, which no fork survives."""
PR_SET_CHILD_SUBREAPER = 36
LARGEST = 100_000
EXECUTES = "BACKBURNER_TEST_EXEC"
"""Set it and every command is executed."""


class Zygote:
    """The process that forks, and the line to it."""

    def __init__(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = os.environ.items()
        self.env = {k: v for k, v in environ if not k.startswith(NOT_HANDED_ON)}
        measured = ["coverage"] if "coverage" in sys.modules else []
        with theirs:
            number = str(theirs.fileno())
            self._popen = subprocess.Popen(
                [sys.executable, "-P", str(ZYGOTE), number, *measured],
                env=self.env | ONE_THREAD,
                pass_fds=[theirs.fileno()],
                stdin=DEVNULL,
                stdout=DEVNULL,
            )
        self._channel = ours
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._lock = threading.Lock()
        threads = self._answer()["threads"]
        assert threads == 1, f"a process with {threads} threads must not be forked"

    def fork(self, request, fds):
        """Have a program started; return its process id, a child of this process."""
        with self._lock:
            # Orphans are ours for as long as one is made, and only then.
            assert 0 == self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                message = json.dumps(request).encode()
                socket.send_fds(self._channel, [message], fds)
                return self._answer()["pid"]
            finally:
                self._prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def close(self):
        self._channel.close()
        self._popen.wait()

    def _answer(self):
        answer = self._channel.recv(LARGEST)
        assert answer, "the process that forks has ended; see its stderr"
        return json.loads(answer)


class Warm:
    """The one `Zygote` of this process, started when it is first needed."""

    def __init__(self):
        self._zygote = None
        self._lock = threading.Lock()
        self.is_off = bool(os.environ.get(EXECUTES)) or sys.platform != "linux"

    def zygote(self):
        with self._lock:
            if self._zygote is None:
                self._zygote = Zygote()
                atexit.register(self._zygote.close)
            return self._zygote


WARM = Warm()


class Popen(subprocess.Popen):
    """A process that is forked where that is as good as a true start."""

    is_forked = False

    def _execute_child(self, args, executable, preexec_fn, close_fds, *rest):
        (pass_fds, cwd, env, _, _, shell, *pipes) = rest[:12]
        (*_, gid, gids, uid, umask, session, group) = rest
        request = _parsed(args)
        plain = (executable, preexec_fn, pass_fds, shell, gid, gids, uid)
        if not request or any(plain) or not close_fds or umask >= 0 or WARM.is_off:
            super()._execute_child(args, executable, preexec_fn, close_fds, *rest)
            return
        zygote = WARM.zygote()
        env = {os.fsdecode(k): os.fsdecode(v) for k, v in (env or os.environ).items()}
        request |= {
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": env,
            "session": bool(session),
            "group": -1 if group is None else group,
        }
        is_long = len(json.dumps(request)) > LARGEST
        if is_long or _at_start(env) != _at_start(zygote.env):
            super()._execute_child(args, executable, preexec_fn, close_fds, *rest)
            return
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        fds = [p2cread, c2pwrite, errwrite]
        try:
            self.pid = zygote.fork(
                request, [own if fd == -1 else fd for own, fd in enumerate(fds)]
            )
            self.is_forked = self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


def run(command, *, input=None, capture_output=False, timeout=None, check=False, **how):
    """Run a program to its end, as `subprocess.run` does."""
    if input is not None:
        how["stdin"] = PIPE
    if capture_output:
        how |= {"stdout": PIPE, "stderr": PIPE}
    with Popen(command, **how) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    code = process.returncode
    if check and code:
        raise subprocess.CalledProcessError(code, process.args, out, err)
    return subprocess.CompletedProcess(process.args, code, out, err)


def check_output(command, **how):
    """Return what a program wrote, as `subprocess.check_output` does."""
    return run(command, stdout=PIPE, check=True, **how).stdout


def _parsed(command):
    """Return what a command line asks this Python for; None if that is no fork's."""
    words = [] if isinstance(command, (str, bytes)) else [*map(os.fspath, command)]
    if not words or words[0] != sys.executable:
        return None
    flags = {"-P": "safe", "-u": "unbuffered"}
    request = dict.fromkeys(flags.values(), False)
    rest = words[1:]
    while rest and rest[0] in flags:
        request[flags[rest.pop(0)]] = True
    way = rest.pop(0) if rest and rest[0] in {"-m", "-c"} else ""
    if not rest or (not way and rest[0].startswith("-")):
        return None
    return request | {"way": way, "program": rest[0], "arguments": rest[1:]}


def _at_start(env):
    return {k: v for k, v in env.items() if v and k.startswith(AT_START)}
