"""How the tests manipulate a broker from outside, mostly through a proxy."""

from collections.abc import Sequence
from datetime import timedelta
from ssl import SSLContext
from typing import Protocol

from backburner.ports.broker import Broker, DeadLetter
from backburner.testing.proxy import Proxy


class Server(Protocol):
    """The broker's server, as tests control it."""

    def broker(self) -> Broker:
        """Create another client, as another process would; it is not open yet."""
        ...

    async def put(self, queue: str, body: bytes, *, name: str = "") -> None:
        """Put a message on an existing queue, as another program would."""
        ...

    async def dead_letters(self, queue: str) -> Sequence[DeadLetter]:
        """Return a queue's dead letters, as the broker's own tools show them."""
        ...

    async def kept_for(self, queue: str) -> timedelta:
        """Return how long the broker keeps a dead letter of that queue."""
        ...

    async def kill(self, broker: Broker) -> None:
        """Remove a client without closing it, as if its process had died."""
        ...

    async def cut(self) -> None:
        """Close all connections from the server's side."""
        ...

    async def stop(self) -> None:
        """Stop the server: connections are cut, and none is accepted."""
        ...

    async def start(self) -> None:
        """Start the server again."""
        ...

    async def freeze(self) -> None:
        """Forward no bytes and close nothing, until `start`."""
        ...


class Proxied:
    """A server behind a proxy: the hooks that are the same for all brokers."""

    def __init__(self, host: str, port: int) -> None:
        self._proxy = Proxy(host, port)

    @property
    def port(self) -> int:
        """The port on the loopback address, once it was started."""
        return self._proxy.port

    async def start(self, ssl: SSLContext | None = None) -> None:
        """Listen on the same port as before, and forward everything."""
        await self._proxy.start(ssl)
        self._proxy.heal()

    async def stop(self) -> None:
        """Cut all connections and accept none."""
        self._proxy.stop()

    async def cut(self) -> None:
        """Cut all connections."""
        self._proxy.break_all()

    async def freeze(self) -> None:
        """Forward nothing and close nothing."""
        self._proxy.freeze()
