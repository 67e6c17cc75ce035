"""Resolves names through the system's resolver."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a name, in the order to try them; none if it has none."""

AT_ONCE: Final = 256
"""The maximum number of pending look-ups: each one holds a thread."""


class SystemResolver:
    """
    Resolves names, each in its own thread.

    A look-up cannot be cancelled: if a name server does not respond, it outlives its
    caller. In a shared pool such threads would delay others, and the end of the
    process.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._left = at_once

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        if self._left == 0:
            return ()
        self._left -= 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str]] = loop.create_future()

        def tell(addresses: Sequence[str]) -> None:
            self._left += 1
            if not answer.done():
                answer.set_result(addresses)

        def ask() -> None:
            addresses = _addresses(host, port)
            with suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(tell, addresses)

        threading.Thread(target=ask, name="backburner-resolve", daemon=True).start()
        return await answer


def _addresses(host: str, port: int) -> Sequence[str]:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(info[4][0]) for info in infos))
