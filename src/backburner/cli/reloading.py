"""
`serve --reload`: a server in a child process, restarted when a Python file changes.

This process holds the socket, so that a request made meanwhile waits instead of being
refused. It never imports the application. If the application cannot be imported, the
child exits with one line, and the next change starts another child.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from socket import socket
from types import FrameType

import uvicorn
from uvicorn.supervisors.basereload import BaseReload

from backburner.cli import exits
from backburner.cli.exits import Exit

IGNORED = frozenset({"__pycache__", "node_modules"})


def run(serve: Callable[[socket], Exit], listener: socket) -> int:
    """Keep a server running on this socket until a signal; return its exit code."""
    reloader = _Reloader(
        uvicorn.Config("", log_config=None),
        partial(_serve, serve),
        [listener],
    )
    for number in exits.STOP_SIGNALS:
        signal.signal(number, reloader.signal_handler)
    reloader.run()
    # A child that is killed while it starts has an exit code below 0: no error.
    return max(Exit.OK, reloader.process.exitcode or Exit.OK)


def _serve(serve: Callable[[socket], Exit], sockets: list[socket]) -> None:
    """Serve in the child process."""
    # Only the parent handles Ctrl-C: a second signal would stop the child at once.
    os.setpgrp()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Cached bytecode is compared by whole seconds: it would hide quick changes.
    sys.dont_write_bytecode = True
    exits.run(lambda: sys.exit(serve(sockets[0])))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class _Reloader(BaseReload):
    """Uvicorn's supervisor, which watches the Python files of the current folder."""

    def __init__(
        self,
        config: uvicorn.Config,
        target: Callable[[list[socket] | None], None],
        sockets: list[socket],
    ) -> None:
        super().__init__(config, target, sockets)
        self.reloader_name = "Backburner"
        self._seen = _changed_at(Path.cwd())

    def signal_handler(self, sig: int, frame: FrameType | None) -> None:
        """Stop; pass a second signal on, so that the child exits at once."""
        if self.should_exit.is_set():
            self.process.terminate()
        super().signal_handler(sig, frame)

    def should_restart(self) -> list[Path] | None:
        """Return the files that were created, changed or deleted since last time."""
        self.pause()
        seen, self._seen = self._seen, _changed_at(Path.cwd())
        return sorted(path for path, _ in seen.items() ^ self._seen.items())


def _changed_at(folder: Path) -> Mapping[Path, int]:
    found = {}
    for path in python_files(folder):
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # deleted since it was listed
            continue
    return found


def python_files(folder: Path) -> Iterator[Path]:
    """List a project's own files: no hidden folders, no virtual environments."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = (
            name
            for name in folders
            if not name.startswith(".")
            and name not in IGNORED
            and not (here / name / "pyvenv.cfg").exists()
        )
        yield from (
            here / name
            for name in files
            if name.endswith(".py") and not name.startswith(".")
        )
