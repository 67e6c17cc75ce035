"""The real command line, as processes of its own, on a store of its own."""

import contextlib
import ctypes
import http.server
import json
import os
import pty
import queue
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

from backburner.client import Client
from tests import warm

# -P, as the installed script does it: the current folder is not on the path by itself.
COMMAND = (sys.executable, "-P", "-m", "backburner")
SECONDS = 180


def the_environment(**settings):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BACKBURNER_")}
    return {**kept, "BACKBURNER_APPS": "backburner.demo:app", **settings}


class Running:
    """A process that stays, and the lines it writes."""

    def __init__(self, *arguments, cwd, env):
        self.popen = warm.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            env=the_environment(**env),
            stdout=warm.PIPE,
            stderr=warm.STDOUT,
            text=True,
        )
        self.lines = []
        self._queue = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def says(self, text):
        """Wait for a line with this text, and return it."""
        while True:
            line = self._queue.get(timeout=SECONDS)
            if line is None:
                pytest.fail(f"it ended without saying {text!r}: {self.lines}")
            if text in line:
                return line.strip()

    def told(self, number):
        self.popen.send_signal(number)
        return self

    def told_aside(self, number):
        """Have a thread other than the main one take a signal, as may happen."""
        pid = self.popen.pid
        threads = Path(f"/proc/{pid}/task").iterdir()
        aside = max(int(thread.name) for thread in threads)
        assert aside != pid
        assert 0 == ctypes.CDLL(None).tgkill(pid, aside, number)
        return self

    def exit_code(self):
        code = self.popen.wait(timeout=SECONDS)
        self._reader.join(timeout=SECONDS)
        return code

    def is_silent(self):
        """Whether all that could write here has ended: the process, its children."""
        return not self._reader.is_alive()

    def end(self):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGKILL)
        self.exit_code()
        self.popen.stdout.close()

    def _read(self):
        for line in self.popen.stdout:
            self.lines.append(line)
            self._queue.put(line)
        self._queue.put(None)


class Server(Running):
    """A `serve` that is ready; `url` is where."""

    def __init__(self, *arguments, cwd, env):
        super().__init__("serve", "--dev", *arguments, cwd=cwd, env=env)
        ready = self.says("Backburner is ready at ")
        self.url = ready.rpartition(" ")[2]
        self.port = self.url.rpartition(":")[2]


@pytest.fixture
def start(tmp_path):
    """Start processes; whatever still runs is ended after the test."""
    started = []

    def begin(*arguments, **env):
        started.append(Running(*arguments, cwd=tmp_path, env=env))
        return started[-1]

    yield begin
    for process in started:
        process.end()


@pytest.fixture
def serve(tmp_path, template):
    """
    Start servers on free ports; whatever still runs is ended after the test.

    Their store is migrated already: half of what a start costs. `url` makes its own.
    """
    started = []
    store = tmp_path / "backburner.db"

    def begin(*arguments, **env):
        chosen = arguments if "--port" in arguments else ("--port", "0", *arguments)
        if not store.exists():
            shutil.copy(template, store)
        started.append(Server(*chosen, cwd=tmp_path, env=env))
        return started[-1]

    yield begin
    for server in started:
        server.end()


@pytest.fixture(scope="session")
def url(tmp_path_factory):
    """A server with a worker, shared by the tests that only ask."""
    server = Server("--port", "0", cwd=tmp_path_factory.mktemp("serve"), env={})
    yield server.url
    server.end()


@pytest.fixture
def client(url):
    with Client(url) as client:
        yield client


@pytest.fixture
def run(tmp_path):
    """Run a command to its end, as a shell would."""

    def call(*arguments, given=None, **env):
        return warm.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=the_environment(**env),
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return call


@pytest.fixture
def ask(run, url):
    """Run a command against the shared server."""

    def call(*arguments, given=None, **env):
        return run(*arguments, given=given, BACKBURNER_URL=url, **env)

    return call


@pytest.fixture
def at_a_terminal(tmp_path):
    """Run with stderr (or both) at a terminal; return stdout and what that saw."""

    def call(*arguments, both=False, **env):
        ours, theirs = pty.openpty()
        popen = warm.Popen(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env={"PATH": os.defpath, "TERM": "xterm-256color", **env},
            stdout=theirs if both else warm.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        seen = _all_of(ours)
        out, _ = popen.communicate(timeout=SECONDS)
        os.close(ours)
        return out, seen

    return call


def _all_of(terminal):
    seen = b""
    with contextlib.suppress(OSError):  # the other side has closed it
        while chunk := os.read(terminal, 4096):
            seen += chunk
    return seen.decode()


class Gate:
    """A pipe that a handler reads: it blocks there until the gate is let go."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path)
        self._fd = None

    def reached(self):
        """Wait until a handler stands at the gate."""
        self._fd = os.open(self.path, os.O_WRONLY)

    def opened(self):
        """Let it pass."""
        os.close(self._fd)


@pytest.fixture
def gate(tmp_path):
    """The gate at which the handlers of `gated:app` stand; both are in this folder."""
    shutil.copy(Path(__file__).parent / "apps" / "gated.py", tmp_path)
    return Gate(tmp_path / "gate")


@pytest.fixture
def answering():
    """Start a server that gives every request the same answer; return its URL."""
    servers = []

    def begin(status, body, content_type="application/problem+json"):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else _dump(body))

            do_POST = do_GET  # noqa: N815 - as http.server wants it

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


class Cutter:
    """Passes connections on to a server; the first answer is cut off."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = []
        """What was sent on each connection."""
        self._threads = []
        self._begin(self._accept)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=SECONDS)
        self._listener.close()

    def _begin(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):  # until it is closed
            while True:
                self._connect(self._listener.accept()[0])

    def _connect(self, client):
        server = socket.create_connection(("127.0.0.1", self._port))
        request = bytearray()
        self.requests.append(request)
        self._begin(self._ask, client, server, request)
        self._begin(self._answer, client, server, len(self.requests) == 1)

    def _ask(self, client, server, request):
        with contextlib.suppress(OSError):
            while chunk := client.recv(65_536):
                request += chunk
                server.sendall(chunk)
        _hang_up(server)

    def _answer(self, client, server, is_cut):
        with client, server:
            with contextlib.suppress(OSError):
                while (chunk := server.recv(65_536)) and not is_cut:
                    client.sendall(chunk)
            _hang_up(client)


def _hang_up(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cutter(url):
    """A way to the shared server on which the first answer is lost."""
    cutter = Cutter(int(url.rpartition(":")[2]))
    yield cutter
    cutter.close()


def _dump(body):
    return json.dumps(body).encode()
