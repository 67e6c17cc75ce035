"""
Amazon SQS and compatible servers: a `Broker` for `sqs://` URLs.

Queues are standard queues. They have the names of Backburner's, where SQS allows them.
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from backburner.brokers.reading import Reading
from backburner.brokers.sqs_address import Address
from backburner.domain.errors import BrokerUnavailable, ConfigurationError
from backburner.domain.message import WORK_AVAILABLE
from backburner.ports.broker import DEAD, DEAD_DAYS, BrokerMessage, DeadLetter
from backburner.ports.finding import Finding, Status

CLIENT_SECONDS = 60.0
"""
The maximum time to create the client, which reads a description of the service and
looks for credentials: that takes seconds on a busy machine.
"""
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 5.0
"""The maximum time for an answer, in addition to the requested waiting time."""
TEN = 10
"""The number of messages in one call."""
BATCH_BYTES = 256 * 1024
"""The maximum size of a call, and so of a message."""
ROOM_BYTES = 1024
"""The part of it that is reserved for a message's name and other fields."""
AT_ONCE = 8
"""The maximum number of concurrent calls, except those that wait for messages."""
CONNECTIONS = 200
TRIES = 3
KEEP_SECONDS = 14 * 86_400
NOT_TEXT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that SQS does not accept in a message."""
NAME = "id"
"""The attribute with the id that a message's producer gave it."""
COUNTED = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
SHORTEST_VISIBILITY = 10
MISSING = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")


class Sent(NamedTuple):
    """A message to send."""

    body: str
    name: str = ""

    def entry(self, number: int) -> dict[str, Any]:
        """Return the message as an entry of a batch call."""
        entry: dict[str, Any] = {"Id": str(number), "MessageBody": self.body}
        if self.name:
            attribute = {"DataType": "String", "StringValue": self.name}
            entry["MessageAttributes"] = {NAME: attribute}
        return entry


class SqsBroker:
    """Uses the queues of one account and region."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._urls: dict[str, str] = {}
        self._look_ups: dict[str, asyncio.Task[str]] = {}
        self._readings: dict[str, Reading] = {}
        self._held: dict[str, dict[str, BrokerMessage]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Create from `sqs://region`; see `Address`."""
        try:
            return cls(Address.read(url))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(
                "BACKBURNER_TRANSPORT is not an SQS URL such as "
                f"sqs://region?endpoint=…&prefix=…&visibility=…&wait=…: {error}"
            ) from error

    async def open(self) -> None:
        for _ in range(TRIES - 1):
            with suppress(BrokerUnavailable):
                await self.ping()
                return
        await self.ping()

    async def close(self) -> None:
        try:
            async with asyncio.timeout(self._address.wait + ANSWER_SECONDS):
                ends = [r.finish(self._address.wait) for r in self._readings.values()]
                await asyncio.gather(*ends)
                for queue, held in self._held.items():
                    await self.give_back(queue, list(held.values()))
        except (TimeoutError, BrokerUnavailable):
            pass  # its messages become visible again after the visibility timeout
        finally:
            self._readings.clear()
            self._held.clear()
            await self._stack.aclose()
            self._client = None

    async def ping(self) -> None:
        with suppress(_Missing):  # even this error shows that the server answers
            await self._call("get_queue_url", QueueName=f"{self._address.prefix}ping")

    async def publish(self, counts: Mapping[str, int]) -> None:
        hint = Sent(WORK_AVAILABLE.decode())
        sends = (self._send(queue, [hint] * count) for queue, count in counts.items())
        await asyncio.gather(*sends)

    async def publish_dead_letters(
        self, queue: str, dead_letters: Sequence[DeadLetter]
    ) -> None:
        sent = [
            Sent(_text(dead_letter.body), _text(dead_letter.id.encode()))
            for dead_letter in dead_letters
        ]
        await self._send(queue + DEAD, sent)

    async def receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        if queue not in self._readings:
            self._readings[queue] = Reading(queue, self._read, self.give_back)
        messages = await self._readings[queue].receive(limit)
        held = self._held.setdefault(queue, {})
        held.update((message.handle, message) for message in messages)
        return messages

    async def acknowledge(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        await self._settle("delete_message_batch", queue, messages)

    async def give_back(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        visible = {"VisibilityTimeout": 0}
        await self._settle("change_message_visibility_batch", queue, messages, visible)

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        counted = await asyncio.gather(*map(self._depth, queues))
        return dict(zip(queues, counted, strict=True))

    async def examine(self) -> AsyncIterator[Finding]:
        where = self._address.endpoint or self._address.region
        try:
            await self.ping()
        except BrokerUnavailable as error:
            fix = "check the credentials, the network and BACKBURNER_TRANSPORT"
            yield Finding(Status.FAIL, "sqs", f"{where}: {error}", fix)
            return
        yield Finding(Status.PASS, "sqs", f"{where} is reachable")
        yield _judged(self._address.visibility)

    async def _read(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        """Wait for messages; if the first call is full, fetch more at once."""
        messages = await self._poll(queue, limit, self._address.wait)
        more = min(math.ceil(limit / TEN) - 1, AT_ONCE)
        if len(messages) == TEN and more:
            polls = (self._poll(queue, TEN, 0) for _ in range(more))
            for polled in await asyncio.gather(*polls, return_exceptions=True):
                messages += polled if isinstance(polled, list) else []
        return messages

    async def _poll(self, queue: str, limit: int, wait: int) -> list[BrokerMessage]:
        answer = await self._on(
            "receive_message",
            queue,
            wait=wait,
            MaxNumberOfMessages=min(limit, TEN),
            WaitTimeSeconds=wait,
            VisibilityTimeout=self._address.visibility,
            MessageAttributeNames=[NAME],
        )
        return [_message(entry) for entry in answer.get("Messages", ())]

    async def _depth(self, queue: str) -> int:
        answer = await self._on(
            "get_queue_attributes", queue, AttributeNames=list(COUNTED)
        )
        return sum(int(answer["Attributes"][name]) for name in COUNTED)

    async def _send(self, queue: str, sent: Sequence[Sent]) -> None:
        batches = [
            [each.entry(number) for number, each in enumerate(batch)]
            for batch in _batches(sent)
        ]
        ask = "send_message_batch"
        await asyncio.gather(*(self._batch(ask, queue, batch) for batch in batches))

    async def _settle(
        self,
        operation: str,
        queue: str,
        messages: Sequence[BrokerMessage],
        words: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Acknowledge or return messages; those that expired meanwhile are ignored."""
        held = self._held.get(queue, {})
        for message in messages:
            held.pop(message.handle, None)
        handles = [message.handle for message in messages]
        batches = [
            [
                {"Id": str(number), "ReceiptHandle": handle, **words}
                for number, handle in enumerate(handles[first : first + TEN])
            ]
            for first in range(0, len(handles), TEN)
        ]
        tells = (self._batch(operation, queue, b, strict=False) for b in batches)
        await asyncio.gather(*tells)

    async def _batch(
        self,
        operation: str,
        queue: str,
        entries: list[dict[str, Any]],
        *,
        strict: bool = True,
    ) -> None:
        """Make a batch call, and retry the entries that failed."""
        for _ in range(TRIES):
            async with self._turns:
                answer = await self._on(operation, queue, Entries=entries)
            failed = {
                failure["Id"]
                for failure in answer.get("Failed", ())
                if strict or not failure["SenderFault"]
            }
            if not failed:
                return
            entries = [entry for entry in entries if entry["Id"] in failed]
        raise BrokerUnavailable(f"SQS did not accept {len(entries)} messages")

    async def _on(
        self, operation: str, queue: str, *, wait: int = 0, **words: Any
    ) -> Any:
        """Make a call on a queue, and create the queue if it does not exist."""
        name = self._name_of(queue)
        try:
            url = await self._url_of(queue)
            return await self._call(operation, wait=wait, QueueUrl=url, **words)
        except _Missing:
            self._urls.pop(name, None)
            url = await self._url_of(queue)
            return await self._call(operation, wait=wait, QueueUrl=url, **words)

    async def _url_of(self, queue: str) -> str:
        """Return a queue's URL; concurrent calls look it up once."""
        name = self._name_of(queue)
        if name in self._urls:
            return self._urls[name]
        if name not in self._look_ups:
            self._look_ups[name] = asyncio.create_task(self._look_up(queue))
            self._look_ups[name].add_done_callback(partial(self._looked_up, name))
        return await asyncio.shield(self._look_ups[name])

    def _looked_up(self, name: str, task: asyncio.Task[str]) -> None:
        del self._look_ups[name]
        if not task.cancelled() and task.exception() is None:
            self._urls[name] = task.result()

    async def _look_up(self, queue: str) -> str:
        """Return a queue's URL; create the queue if it does not exist."""
        name = self._name_of(queue)
        try:
            answer = await self._call("get_queue_url", QueueName=name)
        except _Missing:
            is_dead = queue.endswith(DEAD)
            keep = DEAD_DAYS * 86_400 if is_dead else KEEP_SECONDS
            attributes = {"MessageRetentionPeriod": str(keep)}
            answer = await self._call(
                "create_queue", QueueName=name, Attributes=attributes
            )
            if not is_dead:
                await self._url_of(queue + DEAD)
        return str(answer["QueueUrl"])

    def _name_of(self, queue: str) -> str:
        is_dead = queue.endswith(DEAD)
        living = queue.removesuffix(DEAD)
        return self._address.name_of(living) + (DEAD if is_dead else "")

    async def _call(self, operation: str, *, wait: int = 0, **words: Any) -> Any:
        async with translated():
            if self._client is None:
                async with asyncio.timeout(CLIENT_SECONDS):
                    await self._connect()
            async with asyncio.timeout(ANSWER_SECONDS + wait):
                return await getattr(self._client, operation)(**words)

    async def _connect(self) -> None:
        address = self._address
        making = get_session().create_client(
            "sqs",
            region_name=address.region,
            endpoint_url=address.endpoint,
            aws_access_key_id=address.key,
            aws_secret_access_key=address.secret,
            config=AioConfig(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=ANSWER_SECONDS + address.wait,
                max_pool_connections=CONNECTIONS,
                retries={"total_max_attempts": 2, "mode": "standard"},
            ),
        )
        self._client = await self._stack.enter_async_context(making)


class _Missing(BrokerUnavailable):
    """The queue does not exist."""


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Convert the driver's errors to `BrokerUnavailable`."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        kind = _Missing if code in MISSING else BrokerUnavailable
        raise kind(f"SQS cannot be used: {code}") from None
    except (BotoCoreError, OSError, TimeoutError) as error:
        # The driver's message may contain the body of a message, so it is not logged.
        kind_name = type(error).__name__
        raise BrokerUnavailable(f"SQS cannot be used: {kind_name}") from None


def _message(entry: Mapping[str, Any]) -> BrokerMessage:
    body = entry["Body"].encode()
    if body == WORK_AVAILABLE:
        return BrokerMessage(WORK_AVAILABLE, entry["ReceiptHandle"])
    named = entry.get("MessageAttributes", {}).get(NAME, {}).get("StringValue")
    return BrokerMessage(body, entry["ReceiptHandle"], named or entry["MessageId"])


def _text(value: bytes) -> str:
    """Convert any text to one that SQS accepts."""
    room = BATCH_BYTES - ROOM_BYTES
    return NOT_TEXT.sub("\ufffd", value[:room].decode("utf-8", "replace"))


def _batches(sent: Sequence[Sent]) -> Iterator[list[Sent]]:
    """Group messages into calls within SQS's limits."""
    batch: list[Sent] = []
    size = 0
    for each in sent:
        length = len(each.body.encode()) + len(each.name.encode())
        if len(batch) == TEN or (batch and size + length > BATCH_BYTES - ROOM_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += length
    if batch:
        yield batch


def _judged(visibility: int) -> Finding:
    summary = f"received messages are hidden from others for {visibility} s"
    if visibility < SHORTEST_VISIBILITY:
        fix = "set visibility to 10 or more: a slow claim gets its messages twice"
        return Finding(Status.WARN, "sqs visibility", summary, fix)
    return Finding(Status.PASS, "sqs visibility", summary)
