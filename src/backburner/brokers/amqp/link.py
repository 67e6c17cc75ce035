"""
A connection to the server, opened when it is needed and dropped when it fails.

Any error on a connection ends it: the fate of unanswered requests is unknown then. The
next call opens a new one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiormq import Connection
from aiormq.abc import AbstractChannel
from aiormq.exceptions import (
    AMQPError,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)
from pamqp.exceptions import PAMQPException
from yarl import URL

from backburner.brokers.amqp.consumer import Consumer
from backburner.brokers.amqp.envelope import PLAIN, Post
from backburner.brokers.amqp.publisher import Publisher, Refused
from backburner.brokers.amqp.wire import Wire
from backburner.domain.errors import BrokerUnavailable
from backburner.ports.broker import DEAD, DEAD_DAYS

ANSWER_SECONDS = 4.0
CONNECT_SECONDS = 4.0
PARTING_SECONDS = 1.0
PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses before a connection attempt, by the number of consecutive failures."""
WINDOW = 500
DEAD_MS = DEAD_DAYS * 24 * 3600 * 1000
QUORUM, QUORUM_TTL, DELIVERY_LIMIT = (3, 8), (3, 10), (4, 0)

FAILURES = (AMQPError, ChannelInvalidStateError, OSError, PAMQPException, RuntimeError)

# aiormq's log messages about lost connections are redundant: callers get errors.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)


class Session:
    """One connection and its channels."""

    def __init__(self, connection: Connection, wire: Wire, where: str) -> None:
        self._connection = connection
        self._where = where
        self._asking = asyncio.Lock()
        self._admin: AbstractChannel | None = None
        self._declared: set[str] = set()
        self._publisher: Publisher | None = None
        self.wire = wire
        self.consumers: dict[str, Consumer] = {}

    @property
    def version(self) -> tuple[int, ...]:
        """The server's RabbitMQ version; empty if it is not RabbitMQ."""
        properties = self._connection.server_properties
        if properties.get("product") != "RabbitMQ":
            return ()
        parts = str(properties.get("version")).split(".")
        return tuple(int(part) for part in parts if part.isdecimal())

    async def ping(self) -> None:
        """Return when the server has answered."""
        async with self._asked() as channel:
            await channel.basic_qos(prefetch_count=0)

    async def depth(self, queue: str) -> int | None:
        """Return the number of ready messages of a queue; `None` if it is missing."""
        with suppress(ChannelNotFoundEntity):
            async with self._asked() as channel:
                declared = await channel.queue_declare(queue, passive=True)
                return declared.message_count or 0
        return None

    async def declare(self, queue: str) -> None:
        """Create a queue and its queue of dead letters unless they exist."""
        if queue in self._declared:
            return
        for name in (queue, f"{queue}{DEAD}"):
            if await self.depth(name) is None:
                await self._make(name, kinds(self.version, dead=name != queue))
        self._declared.add(queue)

    def forget(self, queue: str) -> None:
        """Check again whether a queue exists before it is used."""
        self._declared.discard(queue)

    async def post(self, posts: Sequence[Post]) -> None:
        """Publish messages in windows; calls must not overlap."""
        written: dict[Post, bytes] = {}
        for start in range(0, len(posts), WINDOW):
            window = posts[start : start + WINDOW]
            if missing := await self._send(window, written):
                for queue in missing:
                    self.forget(queue.removesuffix(DEAD))
                again = [post for post in window if post.queue in missing]
                if missing := await self._send(again, written):
                    raise Refused(
                        f"queues {sorted(missing)} are deleted again and again"
                    )

    async def _send(
        self, posts: Sequence[Post], written: dict[Post, bytes]
    ) -> set[str]:
        for queue in {post.queue for post in posts}:
            await self.declare(queue.removesuffix(DEAD))
        async with self.answered():
            publisher = await self._publish()
            frame_max = self._connection.connection_tune.frame_max
            for post in posts:
                if post not in written:
                    written[post] = post.written(publisher.channel, frame_max)
            return await publisher.send([written[post] for post in posts])

    async def _publish(self) -> Publisher:
        if self._publisher is None or self._publisher.is_over:
            channel = await self._connection.channel(publisher_confirms=True)
            self._publisher = Publisher(self.wire, channel.number)
        return self._publisher

    async def alarm(self) -> str:
        """Return the alarm that blocks publishing, found by publishing to no queue."""
        async with self.answered():
            publisher = await self._publish()
            with suppress(Refused):
                await publisher.send([Post("", b"").written(publisher.channel)])
        return self.wire.blocked

    async def consumer(self, queue: str) -> Consumer:
        """Return the consumer of a queue on this connection."""
        consumer = self.consumers.get(queue)
        if consumer is not None and not consumer.is_over:
            return consumer
        if consumer is not None:
            await consumer.close()
        self.forget(queue)
        await self.declare(queue)
        async with self.answered():
            channel = await self._connection.channel(publisher_confirms=False)
        self.consumers[queue] = Consumer(self.wire, channel, queue, self.answered)
        return self.consumers[queue]

    async def close(self) -> None:
        """Close the connection, gracefully if the server answers."""
        for consumer in self.consumers.values():
            consumer.stop()
        with suppress(Exception):
            async with asyncio.timeout(PARTING_SECONDS):
                await self._connection.close()
        self.wire.abort("closed by this process")

    async def _make(self, queue: str, kinds: list[dict[str, Any]]) -> None:
        for arguments in kinds[:-1]:
            with suppress(ChannelPreconditionFailed):
                return await self._declare(queue, arguments)
        try:
            await self._declare(queue, kinds[-1])
        except ChannelPreconditionFailed as error:
            raise BrokerUnavailable(
                f"queue {queue!r} cannot be created: {error}"
            ) from error

    async def _declare(self, queue: str, arguments: Mapping[str, Any]) -> None:
        async with self._asked() as channel:
            await channel.queue_declare(queue, durable=True, arguments=dict(arguments))

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[AbstractChannel]:
        """Provide the channel for queries; an error closes it, and the next is new."""
        async with self._asking, self.answered():
            if self._admin is None or self._admin.is_closed:
                self._admin = await self._connection.channel(publisher_confirms=False)
            try:
                yield self._admin
            except (AMQPError, asyncio.CancelledError):
                self._admin = None
                raise

    @asynccontextmanager
    async def answered(self) -> AsyncIterator[None]:
        """Convert timeouts and errors of the connection to `BrokerUnavailable`."""
        try:
            async with unavailable(self._where, ANSWER_SECONDS):
                yield
        except Refused:
            raise
        except BrokerUnavailable as error:
            self.wire.abort(str(error))
            raise


class Link:
    """Holds at most one connection at a time."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._where = f"RabbitMQ at {url.host}:{url.port}"
        self._session: Session | None = None
        self._attempt: asyncio.Task[Session] | None = None
        self._failures = 0
        self._closed = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def current(self) -> Session | None:
        """The connection, if one is open."""
        session = self._session
        return None if session is None or session.wire.lost else session

    async def session(self) -> Session:
        """Return the open connection, or open one."""
        if (session := self.current) is not None:
            return session
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._connect())
            self._attempt.add_done_callback(self._attempted)
        # Several callers may wait for it; cancelling one must not affect the others.
        return await asyncio.shield(self._attempt)

    async def close(self) -> None:
        """Close the connection; pending calls raise `BrokerUnavailable`."""
        self._closed.set()
        if self._attempt is not None:
            with suppress(BrokerUnavailable):
                await self._attempt
        self._leave()
        await asyncio.gather(*self._leaving)

    def _attempted(self, attempt: asyncio.Task[Session]) -> None:
        self._attempt = None
        if not attempt.cancelled():
            attempt.exception()

    def _leave(self) -> None:
        if self._session is not None:
            leaving = asyncio.create_task(self._session.close())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            self._session = None

    async def _connect(self) -> Session:
        self._leave()
        await self._pause()
        wire = Wire(PLAIN)
        connection = Connection(self._url, transport_factory=wire)
        try:
            async with unavailable(self._where, CONNECT_SECONDS):
                await connection.connect()
        except BaseException:
            self._failures += 1
            wire.abort("the connection could not be opened")
            raise
        self._failures = 0
        self._session = Session(connection, wire, self._where)
        return self._session

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSES[min(self._failures, len(PAUSES) - 1)]):
                await self._closed.wait()
        if self._closed.is_set():
            raise BrokerUnavailable(
                f"{self._where}: this process is closing the connection"
            )


def kinds(version: tuple[int, ...], *, dead: bool) -> list[dict[str, Any]]:
    """Return queue arguments, the preferred ones first, the server's default last."""
    lifetime: dict[str, Any] = {"x-message-ttl": DEAD_MS} if dead else {}
    quorum: dict[str, Any] = {"x-queue-type": "quorum"}
    options: list[dict[str, Any]] = [{}]
    if version >= (QUORUM_TTL if dead else QUORUM):
        options.insert(0, quorum)
    if version >= DELIVERY_LIMIT:
        # The default limit drops a message that was returned twenty times.
        options.insert(0, {**quorum, "x-delivery-limit": -1})
    return [option | lifetime for option in options]


@asynccontextmanager
async def unavailable(where: str, seconds: float) -> AsyncIterator[None]:
    """Convert a driver's errors and timeouts to `BrokerUnavailable`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except (ChannelNotFoundEntity, ChannelPreconditionFailed):
        raise
    except TimeoutError as error:
        raise BrokerUnavailable(f"{where} does not answer") from error
    except FAILURES as error:
        reason = str(error) or type(error).__name__
        raise BrokerUnavailable(f"{where} is not available: {reason}") from error
    except asyncio.CancelledError as error:
        # aiormq cancels the tasks that wait on a connection that it closes.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokerUnavailable(f"{where} closed the connection") from error
