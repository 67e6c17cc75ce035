"""
Redis Streams: a `Broker` for `redis://` and `rediss://` URLs.

A queue is a stream of the same name with one consumer group; an entry has the fields
`body` and, if its producer gave it one, `id`. Acknowledged entries are deleted, so the
length of a stream is the number of its open messages.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import RedisError, ResponseError

from backburner.brokers import redis_examination
from backburner.brokers.reading import Reading
from backburner.domain.errors import BrokerUnavailable, ConfigurationError
from backburner.domain.message import WORK_AVAILABLE
from backburner.ports.broker import DEAD, DEAD_DAYS, BrokerMessage, DeadLetter
from backburner.ports.finding import Finding

GROUP = "backburner"
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 5.0
"""The maximum time that an answer may take."""
BLOCK_MS = 1_000
"""How long the server waits for messages before it answers that there are none."""
POOL = 8
READERS = 500
"""The maximum number of waiting connections: one for each queue that is received."""
LOST_MS = 10_000
"""The idle time after which a consumer's messages go to other consumers."""
RECLAIM_SECONDS = 5.0
START = b"0-0"
GONE_MS = 3_600_000
"""The idle time after which a consumer without messages is deleted."""
TIDY_SECONDS = 600.0
DEAD_MS = DEAD_DAYS * 86_400_000
AT_ONCE = 500
"""How many messages one command handles, as all other clients wait for it."""

# Many messages in one command with few bytes: reading and writing them in the driver
# is what takes the time.
PUBLISH = """
for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'body', ARGV[2]) end
"""
READ = """
local found = redis.pcall('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3],
                          'STREAMS', KEYS[1], '>')
if not found then return {'', {}} end
if found.err then return found end
local hints, others = {}, {}
for _, entry in ipairs(found[1][2]) do
  if #entry[2] == 2 and entry[2][2] == ARGV[4] then
    hints[#hints + 1] = entry[1]
  else
    others[#others + 1] = entry
  end
end
return {table.concat(hints, ' '), others}
"""
# Atomic, as an entry that is acknowledged but not deleted would be counted for ever.
FORGET = """
redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 2))
redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
"""
MANY = 8
"""After this many messages at once, more are expected without waiting."""
# Deleting a consumer discards its pending entries, so the check and the deletion must
# be atomic.
TIDY = """
local gone = 0
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then return 0 end
for _, told in ipairs(consumers) do
  local c = {}
  for i = 1, #told, 2 do c[told[i]] = told[i + 1] end
  if c.pending == 0 and (c.idle > tonumber(ARGV[2]) or c.name == ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], c.name)
    gone = gone + 1
  end
end
return gone
"""


class RedisBroker:
    """Messages in the streams of one Redis server."""

    def __init__(self, url: str) -> None:
        self._redis = _client(url, POOL)
        self._readers = _client(url, READERS)
        self._consumer = ""
        self._readings: dict[str, Reading] = {}
        self._busy: set[str] = set()
        self._cursors: dict[str, bytes] = {}
        self._reclaimed: dict[str, float] = {}
        self._tidied: dict[str, float] = {}

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Create from any URL that redis-py accepts; `rediss` means TLS."""
        try:
            return cls(url)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(
                "BACKBURNER_TRANSPORT is not a Redis URL such as "
                "redis://host:port/number, or has an option that redis-py does not "
                f"know: {type(error).__name__}"
            ) from None

    async def open(self) -> None:
        async with translated():
            number = await self._redis.execute_command("CLIENT", "ID")
        self._consumer = f"{socket.gethostname()}-{os.getpid()}-{number}"

    async def close(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for queue, reading in self._readings.items():
                    await reading.finish(0)
                    await self._leave(queue)
        except (TimeoutError, BrokerUnavailable):
            pass  # its messages go to other consumers when it has been idle long enough
        finally:
            self._readings.clear()
            await self._readers.aclose()
            await self._redis.aclose()

    async def ping(self) -> None:
        # Changes nothing, but a server without memory, replicas or disk refuses it.
        async with translated():
            await self._redis.execute_command("SETRANGE", f"{GROUP}-ping", 0, "")

    async def publish(self, counts: Mapping[str, int]) -> None:
        async with translated():
            for queue, count in counts.items():
                for first in range(0, count, AT_ONCE):
                    some = min(AT_ONCE, count - first)
                    await self._redis.execute_command(
                        "EVAL", PUBLISH, 1, queue, some, WORK_AVAILABLE
                    )

    async def publish_dead_letters(
        self, queue: str, dead_letters: Sequence[DeadLetter]
    ) -> None:
        name = queue + DEAD
        async with translated():
            oldest = await self._oldest_dead()
            pipe = self._redis.pipeline(transaction=False)
            for dead_letter in dead_letters:
                fields = ("body", dead_letter.body, "id", dead_letter.id)
                pipe.execute_command("XADD", name, "MINID", oldest, "*", *fields)
            await pipe.execute()

    async def receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        if queue not in self._readings:
            self._readings[queue] = Reading(queue, self._read, self.give_back)
        return await self._readings[queue].receive(limit)

    async def acknowledge(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        ids = [message.handle for message in messages]
        async with translated():
            for first in range(0, len(ids), AT_ONCE):
                some = ids[first : first + AT_ONCE]
                await self._redis.execute_command(
                    "EVAL", FORGET, 1, queue, GROUP, *some
                )

    async def give_back(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        """Add the messages again: a stream cannot return them to other consumers."""
        if not messages:
            return
        pipe = self._redis.pipeline()
        for message in messages:
            fields = ["body", message.body, *(("id", message.id) if message.id else ())]
            pipe.execute_command("XADD", queue, "*", *fields)
        ids = [message.handle for message in messages]
        pipe.execute_command("XACK", queue, GROUP, *ids)
        pipe.execute_command("XDEL", queue, *ids)
        async with translated():
            await pipe.execute()

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        pipe = self._redis.pipeline(transaction=False)
        for queue in queues:
            pipe.execute_command("XLEN", queue)
        async with translated():
            return dict(zip(queues, await pipe.execute(), strict=True))

    def examine(self) -> AsyncIterator[Finding]:
        return redis_examination.examine(self._redis)

    async def _read(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        async with translated():
            try:
                messages = await self._receive(queue, limit)
            except ResponseError as error:
                if not _is_flushed(error):
                    raise
                await self._make(queue)
                return []
        note = self._busy.add if len(messages) >= MANY else self._busy.discard
        note(queue)
        return messages

    async def _receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        messages = await self._reclaim(queue, limit)
        if not messages and queue in self._busy:
            messages = await self._read_now(queue, limit)
        return messages or await self._read_waiting(queue, limit)

    async def _read_now(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        hints, others = await self._redis.execute_command(
            "EVAL", READ, 1, queue, GROUP, self._consumer, limit, WORK_AVAILABLE
        )
        pairs = ((number, iter(fields)) for number, fields in others)
        entries = [(n, dict(zip(fs, fs, strict=True))) for n, fs in pairs]
        hints_ = [BrokerMessage(WORK_AVAILABLE, number) for number in hints.split()]
        return [*hints_, *_messages(entries)]

    async def _read_waiting(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        answer = await self._readers.execute_command(
            *("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", limit),
            *("BLOCK", BLOCK_MS, "STREAMS", queue, ">"),
        )
        return [m for _, entries in answer for m in _messages(entries)]

    async def _reclaim(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        """Take over messages of consumers that have been idle for too long."""
        if not _is_due(self._reclaimed, queue, RECLAIM_SECONDS):
            return []
        begin = self._cursors.get(queue, START)
        cursor, entries, *_ = await self._redis.execute_command(
            *("XAUTOCLAIM", queue, GROUP, self._consumer, LOST_MS, begin),
            *("COUNT", limit),
        )
        self._cursors[queue] = cursor
        if cursor != START:
            del self._reclaimed[queue]  # there may be more
        if _is_due(self._tidied, queue, TIDY_SECONDS):
            await self._tidy(queue)
        return _messages(entries)

    async def _make(self, queue: str) -> None:
        """Create the group, and the stream if necessary; all its entries are unread."""
        make = ("XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM")
        try:
            await self._redis.execute_command(*make)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def _tidy(self, queue: str) -> None:
        oldest = await self._oldest_dead()
        await self._redis.execute_command("XTRIM", queue + DEAD, "MINID", oldest)
        await self._redis.execute_command("EVAL", TIDY, 1, queue, GROUP, GONE_MS, "")

    async def _leave(self, queue: str) -> None:
        """Return the messages that this consumer holds, and delete it."""
        held = ("XREADGROUP", "GROUP", GROUP, self._consumer, "STREAMS", queue, "0")
        async with translated():
            with suppress(ResponseError):  # the stream was deleted
                answer = await self._redis.execute_command(*held)
                for _, entries in answer:
                    await self.give_back(queue, _messages(entries))
                tidy = ("EVAL", TIDY, 1, queue, GROUP, GONE_MS, self._consumer)
                await self._redis.execute_command(*tidy)

    async def _oldest_dead(self) -> int:
        seconds, _ = await self._redis.execute_command("TIME")
        return int(seconds) * 1000 - DEAD_MS


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Convert the driver's errors to `BrokerUnavailable`."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        # The driver's message may contain the body of a message, so it is not logged.
        raise BrokerUnavailable(f"Redis cannot be used: {_error_code(error)}") from None


def _error_code(error: Exception) -> str:
    """Return the server's error code, or the type of the error."""
    word = str(error).rpartition("caused error: ")[2].partition(" ")[0]
    is_code = isinstance(error, ResponseError) and word.isupper()
    return word if is_code else type(error).__name__


def _client(url: str, connections: int) -> Any:
    pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=ANSWER_SECONDS,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        # Retry once if the connection was closed; a duplicate message does no harm.
        retry=Retry(NoBackoff(), 1, supported_errors=(Lost,)),
        protocol=2,
        client_name="backburner",
    )
    pool.connection_class(**pool.connection_kwargs)  # so that bad options fail now
    return Redis.from_pool(pool)


def _messages(entries: Sequence[Any]) -> list[BrokerMessage]:
    """Convert entries; those deleted meanwhile have no fields."""
    return [_message(*entry) for entry in entries if entry[1] is not None]


def _message(number: bytes, fields: Mapping[bytes, bytes]) -> BrokerMessage:
    body = fields.get(b"body")
    if body == WORK_AVAILABLE:
        return BrokerMessage(WORK_AVAILABLE, number)
    if body is None:
        body = json.dumps({_text(k): _text(v) for k, v in fields.items()}).encode()
    name = _text(fields.get(b"id", b"")) or number.decode()
    return BrokerMessage(body, number, name)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _is_flushed(error: ResponseError) -> bool:
    return str(error).startswith(("NOGROUP", "UNBLOCKED"))


def _is_due(times: dict[str, float], queue: str, seconds: float) -> bool:
    """Return whether the time since the last call with True has passed."""
    now = asyncio.get_running_loop().time()
    if now - times.get(queue, -seconds) < seconds:
        return False
    times[queue] = now
    return True
