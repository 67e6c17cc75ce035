"""
Notifications between the processes that share a file, over one datagram socket each.

The sockets are in a folder beside the database, readable by its owner only. A
notification is one byte sent to every socket; sockets of ended processes are removed.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from backburner.ports.notifier import ALL, Notification

_LONGEST = 100
"""The maximum length of a socket's path; the system allows about 107 bytes."""


class SocketNotifier:
    """A `Notifier` over Unix datagrams. Open it on the event loop that listens."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listeners: list[Callable[[Notification], None]] = []
        self._socket: socket.socket | None = None
        self._folder_fd: int | None = None
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._pending = Notification(0)
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Start to receive notifications."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(self._address(self._name))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._hear)

    def close(self) -> None:
        """Stop to receive and to send notifications."""
        if self._socket is None or self._loop is None:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        with contextlib.suppress(OSError):
            self._folder.joinpath(self._name).unlink()
        if self._folder_fd is not None:
            os.close(self._folder_fd)

    def notify(self, what: Notification) -> None:
        if self._loop is None:
            return
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending |= what

    def listen(self, callback: Callable[[Notification], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def _flush(self) -> None:
        what, self._pending = self._pending, Notification(0)
        self._call(what)
        self._tell_others(what)

    def _call(self, what: Notification) -> None:
        for listener in tuple(self._listeners):
            listener(what)

    def _tell_others(self, what: Notification) -> None:
        if self._socket is None:
            return
        message = bytes([what])
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - on the hot path
        except FileNotFoundError:  # the folder was removed: the others will poll
            return
        for name in names:
            if name == self._name:
                continue
            try:
                self._socket.sendto(message, self._address(name))
            except (ConnectionRefusedError, FileNotFoundError):
                with contextlib.suppress(OSError):
                    self._folder.joinpath(name).unlink()
            except OSError:  # its buffer is full, so it has notifications already
                continue

    def _hear(self) -> None:
        if self._socket is None:
            return
        heard = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                heard |= self._socket.recv(1)[0]
        self._call(Notification(heard & int(ALL)))

    def _address(self, name: str) -> str:
        path = str(self._folder / name)
        if len(os.fsencode(path)) <= _LONGEST:
            return path
        return f"/proc/self/fd/{self._folder_fd}/{name}"
