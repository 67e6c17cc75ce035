"""Chromium, headless, told what to do over its DevTools protocol."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager

from websockets.sync.client import connect

from tests.chromium import OPTIONS, program
from tests.examples.installed import SECONDS


class UsageLog:
    """A page that the browser shows."""

    def __init__(self, socket):
        self._socket = socket
        self._session = {}
        self._last = 0

    def open(self, url):
        """Show a page, and wait until it is loaded."""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self._ask("Page.enable")
        self._ask("Page.navigate", url=url)
        while self._hear().get("method") != "Page.loadEventFired":
            pass

    def run(self, script):
        """Run JavaScript in the page, and return what its promise came to."""
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        told = self._ask("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def _ask(self, method, **params):
        self._last += 1
        call = {"id": self._last, "method": method, "params": params}
        self._socket.send(json.dumps({**call, **self._session}))
        while (told := self._hear()).get("id") != self._last:
            pass
        assert "result" in told, told
        return told["result"]

    def _hear(self):
        return json.loads(self._socket.recv(SECONDS))


@contextmanager
def browsing(folder):
    """Run the browser while the block runs; yield a tab."""
    with subprocess.Popen(
        [program(), *OPTIONS, f"--user-data-dir={folder}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as browser:
        try:
            line = next(line for line in browser.stderr if "listening on ws" in line)
            with connect(line.split()[-1], proxy=None, max_size=None) as socket:
                yield UsageLog(socket)
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
