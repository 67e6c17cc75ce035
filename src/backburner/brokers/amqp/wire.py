"""
The fast path of a connection: deliveries, acknowledgements and confirms.

aiormq creates several objects, queue entries and a task for each message, which costs
more than the rest of a job. So this module reads the bytes first, through aiormq's own
hook (`TransportFactory`). It handles the frames of messages on channels with a receiver
or publisher. All others go to aiormq: handshake, heartbeats, channels, declarations.
"""

import asyncio
import struct
from typing import Any, Protocol, cast

from aiormq.connection import (
    TCPTransportFactory,
    TLSTransportFactory,
    TransportFactory,
)
from pamqp.exceptions import PAMQPException
from pamqp.header import ContentHeader
from yarl import URL

CHUNK = 65_536
HEAD = struct.Struct(">BHI")
TAG = struct.Struct(">Q")
SIZE = struct.Struct(">Q")
SETTLE = struct.Struct(">BHIHHQBB")
METHOD, HEADER, END = 1, 2, 0xCE
ACK, NACK = 80, 120
MULTIPLE, REQUEUE = 1, 2
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
HEARTBEAT_SECONDS = 1.0

CONNECTION_CLOSE = b"\x00\x0a\x00\x32"
CONNECTION_BLOCKED = b"\x00\x0a\x00\x3c"
CONNECTION_UNBLOCKED = b"\x00\x0a\x00\x3d"
CHANNEL_CLOSE = b"\x00\x14\x00\x28"
BASIC_CANCEL = b"\x00\x3c\x00\x1e"
BASIC_RETURN = b"\x00\x3c\x00\x32"
BASIC_DELIVER = b"\x00\x3c\x00\x3c"
BASIC_ACK = b"\x00\x3c\x00\x50"
BASIC_NACK = b"\x00\x3c\x00\x78"
ANSWERS = (BASIC_ACK, BASIC_NACK, BASIC_RETURN)


class Receiver(Protocol):
    """Receives the messages of a channel."""

    def delivered(self, tag: int, name: str, body: bytes) -> None:
        """Handle a message."""
        ...

    def ended(self, reason: str) -> None:
        """Note that no more messages can arrive."""
        ...


class Publisher(Protocol):
    """Publishes messages on a channel."""

    def confirmed(self, tag: int, *, multiple: bool, kept: bool) -> None:
        """Note the fate of a message, and of all before it if `multiple`."""
        ...

    def returned(self, queue: str) -> None:
        """Note that a message was returned because its queue does not exist."""
        ...

    def blocked(self, reason: str) -> None:
        """Note that an alarm stops the server from accepting messages."""
        ...

    def ended(self, reason: str) -> None:
        """Note that nothing can be published any more."""
        ...


class _Content:
    """A message whose frames have not all arrived yet."""

    def __init__(self, tag: int | None) -> None:
        self.tag = tag
        self.name = ""
        self.left = 0
        self.parts: list[bytes] = []


class Wire(TransportFactory):
    """Opens a connection, and reads it in place of aiormq's reader."""

    def __init__(self, plain: bytes) -> None:
        """`plain` is the encoded properties of messages without an id."""
        self._plain = plain
        self._receivers: dict[int, Receiver] = {}
        self._publishers: dict[int, Publisher] = {}
        self._contents: dict[int, _Content] = {}
        self._raw = b""
        self._rest = bytearray()
        self._beaten = 0.0
        self.lost = ""
        """Why the connection ended; empty while it is open."""
        self.blocked = ""
        """The alarm that stops the server from accepting messages; empty if none."""

    async def create(
        self, url: URL, **kwargs: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        factory = (
            TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        )
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = await factory.create(url, **kwargs)
        return cast("asyncio.StreamReader", self), self._writer

    def receive_on(self, channel: int, receiver: Receiver) -> None:
        """Deliver the messages of a channel to a receiver."""
        self._receivers[channel] = receiver

    def publish_on(self, channel: int, publisher: Publisher) -> None:
        """Report confirms and returns on a channel to a publisher."""
        self._publishers[channel] = publisher

    def send(self, frames: bytes) -> None:
        """Write whole frames."""
        if not self.lost:
            self._writer.write(frames)

    async def drain(self) -> None:
        """Wait until the write buffer has room."""
        await self._writer.drain()

    def abort(self, reason: str) -> None:
        """Drop the connection at once."""
        self._lose(reason)
        if hasattr(self, "_writer"):
            self._writer.transport.abort()

    def at_eof(self) -> bool:
        """Return whether everything was read; called by aiormq."""
        return not self._rest and self._reader.at_eof()

    async def readexactly(self, count: int) -> bytes:
        """Return bytes that are meant for aiormq."""
        try:
            while len(self._rest) < count:
                self._sift(await self._reader.read(CHUNK))
        except BaseException:
            self._lose("the connection was closed")
            raise
        read = bytes(self._rest[:count])
        del self._rest[:count]
        return read

    def _sift(self, chunk: bytes) -> None:
        if not chunk:
            raise asyncio.IncompleteReadError(bytes(self._rest), None)
        data = self._raw + chunk if self._raw else chunk
        at, end, handled = 0, len(data), False
        while end - at >= HEAD.size:
            kind, channel, size = HEAD.unpack_from(data, at)
            stop = at + HEAD.size + size + 1
            if stop > end:
                break
            if self._take(kind, channel, data[at + HEAD.size : stop - 1]):
                handled = True
            else:
                self._rest += data[at:stop]
            at = stop
        self._raw = data[at:]
        if handled and self._loop.time() - self._beaten > HEARTBEAT_SECONDS:
            # aiormq does not see this traffic: a heartbeat keeps it from giving up.
            self._beaten = self._loop.time()
            self._rest += HEARTBEAT

    def _take(self, kind: int, channel: int, payload: bytes) -> bool:
        if kind == METHOD:
            return self._method(channel, payload)
        content = self._contents.get(channel)
        if content is None:
            return False
        if kind == HEADER:
            (content.left,) = SIZE.unpack_from(payload, 4)
            if content.tag is not None and payload[12:] != self._plain:
                content.name = _name(payload)
        else:
            content.left -= len(payload)
            content.parts.append(payload)
        if content.left <= 0:
            self._complete(channel, content)
        return True

    def _complete(self, channel: int, content: _Content) -> None:
        del self._contents[channel]
        if content.tag is not None:
            parts = content.parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._receivers[channel].delivered(content.tag, content.name, body)

    def _method(self, channel: int, payload: bytes) -> bool:
        method = payload[:4]
        if method == BASIC_DELIVER and channel in self._receivers:
            (tag,) = TAG.unpack_from(payload, 5 + payload[4])
            self._contents[channel] = _Content(tag)
            return True
        if method in ANSWERS and (publisher := self._publishers.get(channel)):
            if method == BASIC_RETURN:
                self._contents[channel] = _Content(None)
                publisher.returned(_routing_key(payload))
            else:
                (tag,) = TAG.unpack_from(payload, 4)
                multiple = bool(payload[12] & MULTIPLE)
                publisher.confirmed(tag, multiple=multiple, kept=method == BASIC_ACK)
            return True
        self._note(channel, method, payload)
        return False

    def _note(self, channel: int, method: bytes, payload: bytes) -> None:
        if method in (BASIC_CANCEL, CHANNEL_CLOSE):
            for watchers in (self._receivers, self._publishers):
                if channel in watchers:
                    watchers[channel].ended("the server closed the channel")
        elif method == CONNECTION_CLOSE:
            self._lose(_text(payload, 6) or "the server closed the connection")
        elif method == CONNECTION_BLOCKED:
            self.blocked = _text(payload, 4) or "alarm"
            for publisher in self._publishers.values():
                publisher.blocked(self.blocked)
        elif method == CONNECTION_UNBLOCKED:
            self.blocked = ""

    def _lose(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason
            for watchers in (self._receivers, self._publishers):
                for watcher in watchers.values():
                    watcher.ended(reason)


def settle(channel: int, tag: int, method: int, flags: int) -> bytes:
    """Encode an acknowledgement (`ACK`) or a rejection (`NACK`)."""
    return SETTLE.pack(METHOD, channel, 13, 60, method, tag, flags, END)


def _text(payload: bytes, at: int) -> str:
    size = payload[at]
    return payload[at + 1 : at + 1 + size].decode("utf-8", "replace")


def _routing_key(payload: bytes) -> str:
    at = 6  # after the method and the reply code; then come reply text and exchange
    for _ in range(2):
        at += 1 + payload[at]
    return _text(payload, at)


def _name(payload: bytes) -> str:
    header = ContentHeader()
    try:
        header.unmarshal(payload)
    except (PAMQPException, ValueError, IndexError, struct.error):
        return ""  # the message is delivered even if its header is invalid
    name = header.properties.message_id
    return name if isinstance(name, str) else ""
