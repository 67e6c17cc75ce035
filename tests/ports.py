"""Ports of loopback that nobody else is given while a test has them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """
    Hold a free port without listening on it.

    Nobody is given it by chance, callers are refused, and a server that is told to
    listen there can (`SO_REUSEADDR`, as servers set it), again and again.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        yield port
