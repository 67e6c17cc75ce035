"""What a name stands for, asked of the system."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a name, in the order to try them; none if it has none."""

AT_ONCE: Final = 256
"""More questions are not asked: a server of names that hangs costs threads."""


class SystemResolver:
    """
    Asks the system, each time in a thread of its own.

    A question cannot be taken back: one to a server that does not answer outlives
    whoever asked. In a shared pool such threads would keep others waiting, and the
    process from ending.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._left = at_once

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        if self._left == 0:
            return ()
        self._left -= 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str]] = loop.create_future()

        def tell(found: Sequence[str]) -> None:
            self._left += 1
            if not answer.done():
                answer.set_result(found)

        def ask() -> None:
            found = _addresses(host, port)
            with suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(tell, found)

        threading.Thread(target=ask, name="backburner-resolve", daemon=True).start()
        return await answer


def _addresses(host: str, port: int) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))
