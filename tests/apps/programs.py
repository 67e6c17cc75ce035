"""Servers and workers of applications as processes, which tests may kill."""

import os
import sys
from pathlib import Path

from backburner.testing.broker.acts import pause
from tests import warm

DROPPED = ("BACKBURNER_", "COVERAGE_", "DISCORD_", "OPENAI_", "RABBITMQ_", "REDIS_")
"""Who is killed writes down no coverage; measuring it would only make it slow."""
TRANSPORT = "BACKBURNER_TRANSPORT"
WITH_BROKER = Path(__file__).parents[1] / "faults" / "apps"
"""Where the broker is that runs of the tests share; who starts here is told by it."""
SLOTS = 8
"""How many jobs a worker of a fleet runs at once."""


def launch(log, *arguments, cwd, settings):
    """Start `backburner` with these settings only; what it prints goes to a file."""
    known = os.environ.items()  # noqa: TID251 - what our programs start in
    kept = {k: v for k, v in known if not k.startswith(DROPPED)}
    if cwd == WITH_BROKER:
        kept |= {k: v for k, v in known if k == TRANSPORT}
    with log.open("wb") as output:
        return warm.Popen(
            [sys.executable, "-m", "backburner", *arguments],
            cwd=cwd,
            env=kept | settings,
            stdin=warm.DEVNULL,
            stdout=output,
            stderr=output,
        )


class Fleet:
    """A server and workers of an application, over one database."""

    def __init__(self, app, folder, url, port, **settings):
        self.app, self.folder, self.url, self.port = app, folder, url, port
        self.settings = {
            "BACKBURNER_STORE": url,
            "BACKBURNER_BEAT_SECONDS": "0.5",
            "BACKBURNER_LEASE_SECONDS": "3",
            "BACKBURNER_POLL_SECONDS": "0.3",
            "BACKBURNER_GRACE_SECONDS": "1",
            "BACKBURNER_SLOTS": str(SLOTS),
            "BACKBURNER_CRASH_LIMIT": "1000",
            **settings,
        }
        self._processes = []

    async def serve(self):
        """Start a server without a worker, and wait until it is ready."""
        port = str(self.port)
        arguments = "serve", self.app, "--dev", "--no-worker", "--port", port
        process = self._start(*arguments)
        while "Backburner is ready" not in process.path.read_text():
            assert process.poll() is None, process.path.read_text()
            await pause()

    def work(self, **settings):
        """Start a worker."""
        return self._start("worker", "--dev", "--app", self.app, **settings)

    def _start(self, *arguments, **settings):
        path = self.folder / f"{len(self._processes)}.log"
        settings = self.settings | settings
        process = launch(path, *arguments, cwd=WITH_BROKER, settings=settings)
        process.path = path
        self._processes.append(process)
        return process

    def kill(self):
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
