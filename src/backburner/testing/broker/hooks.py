"""What the tests do to a broker from outside, most of it by a proxy."""

from collections.abc import Sequence
from datetime import timedelta
from ssl import SSLContext
from typing import Protocol

from backburner.ports.broker import Broker, DeadLetter
from backburner.testing.proxy import Proxy


class Server(Protocol):
    """The message broker, seen from outside."""

    def broker(self) -> Broker:
        """Make one more client, as another process would; it is not opened."""
        ...

    async def put(self, queue: str, body: bytes, *, name: str = "") -> None:
        """Put a message on a queue that is there, as a foreign program would."""
        ...

    async def dead_letters(self, queue: str) -> Sequence[DeadLetter]:
        """Return a queue's dead letters, as the broker's own tools show them."""
        ...

    async def kept_for(self, queue: str) -> timedelta:
        """Return how long the broker keeps a dead letter of that queue."""
        ...

    async def kill(self, broker: Broker) -> None:
        """Let a client be gone without a word, as if its process had died."""
        ...

    async def cut(self) -> None:
        """Close every connection from the server's side."""
        ...

    async def stop(self) -> None:
        """Be gone: connections are cut and none is taken."""
        ...

    async def start(self) -> None:
        """Be back."""
        ...

    async def freeze(self) -> None:
        """Swallow every byte and close nothing, until `start`."""
        ...


class Proxied:
    """A server behind a proxy: the hooks that are the same for every broker."""

    def __init__(self, host: str, port: int) -> None:
        self._proxy = Proxy(host, port)

    @property
    def port(self) -> int:
        """Where it listens, on the loopback, once it was started."""
        return self._proxy.port

    async def start(self, ssl: SSLContext | None = None) -> None:
        """Listen, at the same port as before, and pass everything on."""
        await self._proxy.start(ssl)
        self._proxy.heal()

    async def stop(self) -> None:
        """Cut every connection and take none."""
        self._proxy.stop()

    async def cut(self) -> None:
        """Cut every connection."""
        self._proxy.break_all()

    async def freeze(self) -> None:
        """Pass nothing on and close nothing."""
        self._proxy.freeze()
