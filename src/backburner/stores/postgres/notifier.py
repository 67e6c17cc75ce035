"""
Notifications over LISTEN and NOTIFY, outside the submitting transaction, debounced.

A commit with NOTIFY takes a lock on the whole database, so transactions do not notify:
a separate connection does it afterwards, at most every few milliseconds.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from backburner.ports.log import log
from backburner.ports.notifier import ALL, Notification
from backburner.stores.postgres.database import CONNECT_SECONDS, dial

CHANNEL = "backburner"
DEBOUNCE_SECONDS = 0.002
RECONNECT_SECONDS = 1.0


class PostgresNotifier:
    """A `Notifier` over one connection that listens and notifies."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._listeners: list[Callable[[Notification], None]] = []
        self._pending = Notification(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start to receive notifications."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._work(), name="notifier")

    def close(self) -> None:
        """Stop to receive and to send notifications."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._loop = None

    def notify(self, what: Notification) -> None:
        if self._loop is None:
            return
        self._pending |= what
        self._rung.set()
        self._loop.call_soon(self._call, what)

    def listen(self, callback: Callable[[Notification], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def _call(self, what: Notification) -> None:
        for listener in tuple(self._listeners):
            listener(what)

    async def _work(self) -> None:
        while True:
            try:
                await self._serve()
            except Exception as error:  # noqa: BLE001 - one that ends is a silent fault
                log.warning("notifier lost", error_type=type(error).__name__)
                await asyncio.sleep(RECONNECT_SECONDS)  # noqa: TID251 - back-off

    async def _serve(self) -> None:
        connection = await dial(
            self._dsn,
            name="backburner-notifier",
            timeout=CONNECT_SECONDS,
            command_timeout=CONNECT_SECONDS,
        )
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: self._end(ended))
        try:
            # Read now: a notification may arrive after the connection was closed.
            own_pid = connection.get_server_pid()
            await connection.add_listener(CHANNEL, partial(self._hear, own_pid))
            self._call(ALL)
            while not ended.is_set():
                if not self._pending:
                    await self._rung.wait()
                self._rung.clear()
                await self._notify(connection)
            raise ConnectionResetError("the connection was closed")
        finally:
            connection.terminate()

    async def _notify(self, connection: Any) -> None:
        what, self._pending = self._pending, Notification(0)
        if not what:
            return
        try:
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{what:d}")
        except BaseException:
            self._pending |= what  # sent by the next connection
            raise
        await asyncio.sleep(DEBOUNCE_SECONDS)  # noqa: TID251 - debounce

    def _end(self, ended: asyncio.Event) -> None:
        ended.set()
        self._rung.set()

    def _hear(
        self, own_pid: int, _: Any, pid: int, _channel: str, payload: str
    ) -> None:
        # Anyone may notify: payloads that are not our numbers are ignored.
        if pid != own_pid and payload.isdecimal():
            self._call(Notification(int(payload) & int(ALL)))
