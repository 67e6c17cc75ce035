"""
The hot half of a connection: deliveries, acknowledgements and confirms.

aiormq makes three objects, three entries of a queue and a task of each message, which
costs more than the rest of a job. So the bytes pass here first, by its own hook
(`TransportFactory`): frames that carry messages on a channel that somebody watches are
taken out, and all others are aiormq's: handshake, heartbeats, channels, declarations.
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
    """Whoever gets the messages of a channel."""

    def delivered(self, tag: int, name: str, body: bytes) -> None:
        """Take a message."""
        ...

    def ended(self, reason: str) -> None:
        """Learn that nothing more comes."""
        ...


class Publisher(Protocol):
    """Whoever sends messages on a channel."""

    def confirmed(self, tag: int, *, multiple: bool, kept: bool) -> None:
        """Learn what became of a message, and of all before it if `multiple`."""
        ...

    def returned(self, queue: str) -> None:
        """Learn that a message was for a queue that is not there."""
        ...

    def blocked(self, reason: str) -> None:
        """Learn that an alarm keeps the server from taking messages."""
        ...

    def ended(self, reason: str) -> None:
        """Learn that nothing can be sent any more."""
        ...


class _Content:
    """A message of which not all frames are here yet."""

    def __init__(self, tag: int | None) -> None:
        self.tag = tag
        self.name = ""
        self.left = 0
        self.parts: list[bytes] = []


class Wire(TransportFactory):
    """Opens a connection, and reads it in the place of aiormq's reader."""

    def __init__(self, plain: bytes) -> None:
        """Take the properties of our own messages: they name nobody."""
        self._plain = plain
        self._receivers: dict[int, Receiver] = {}
        self._publishers: dict[int, Publisher] = {}
        self._contents: dict[int, _Content] = {}
        self._raw = b""
        self._rest = bytearray()
        self._beaten = 0.0
        self.lost = ""
        """Why the connection is over; empty while it is not."""
        self.blocked = ""
        """Which alarm keeps the server from taking messages; empty if none does."""

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
        """Give somebody the messages that come on a channel."""
        self._receivers[channel] = receiver

    def publish_on(self, channel: int, publisher: Publisher) -> None:
        """Tell somebody what becomes of the messages sent on a channel."""
        self._publishers[channel] = publisher

    def send(self, frames: bytes) -> None:
        """Write whole frames."""
        if not self.lost:
            self._writer.write(frames)

    async def drain(self) -> None:
        """Wait until there is room to write more."""
        await self._writer.drain()

    def abort(self, reason: str) -> None:
        """Be gone at once."""
        self._lose(reason)
        if hasattr(self, "_writer"):
            self._writer.transport.abort()

    def at_eof(self) -> bool:
        """Tell aiormq whether all is read."""
        return not self._rest and self._reader.at_eof()

    async def readexactly(self, count: int) -> bytes:
        """Give aiormq what is its own."""
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
        at, end, kept = 0, len(data), False
        while end - at >= HEAD.size:
            kind, channel, size = HEAD.unpack_from(data, at)
            stop = at + HEAD.size + size + 1
            if stop > end:
                break
            if self._take(kind, channel, data[at + HEAD.size : stop - 1]):
                kept = True
            else:
                self._rest += data[at:stop]
            at = stop
        self._raw = data[at:]
        if kept and self._loop.time() - self._beaten > HEARTBEAT_SECONDS:
            # aiormq must not take a busy connection, of which it sees nothing, for dead
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
    """Write an acknowledgement (`ACK`) or the contrary (`NACK`)."""
    return SETTLE.pack(METHOD, channel, 13, 60, method, tag, flags, END)


def _text(payload: bytes, at: int) -> str:
    size = payload[at]
    return payload[at + 1 : at + 1 + size].decode("utf-8", "replace")


def _routing_key(payload: bytes) -> str:
    at = 6  # after the method and the reply's code come its text and the exchange
    for _ in range(2):
        at += 1 + payload[at]
    return _text(payload, at)


def _name(payload: bytes) -> str:
    header = ContentHeader()
    try:
        header.unmarshal(payload)
    except (PAMQPException, ValueError, IndexError, struct.error):
        return ""  # whoever wrote it, the message is to be had all the same
    name = header.properties.message_id
    return name if isinstance(name, str) else ""
