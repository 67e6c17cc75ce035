"""
Amazon SQS, or a server that speaks like it: a `Broker` for `sqs://` URLs.

A queue is a standard queue; its name is the queue's own where SQS allows that.
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
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
How long making the client may take: it reads the description of the service, which
takes seconds on a busy machine, and looks for credentials.
"""
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 5.0
"""How long an answer may take, over the time that it was told to wait."""
TEN = 10
"""How many messages go in one call."""
BATCH_BYTES = 256 * 1024
"""What one call may hold, and so one message."""
ROOM_BYTES = 1024
"""What a message's name and the like may take of that."""
AT_ONCE = 8
"""How many calls are under way at once, but for those that wait for messages."""
CONNECTIONS = 200
TRIES = 3
KEEP_SECONDS = 14 * 86_400
NOT_TEXT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What SQS takes in no message."""
NAME = "id"
"""The attribute that says what a message's producer called it."""
COUNTED = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
SHORTEST_VISIBILITY = 10
MISSING = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")


class Sent(NamedTuple):
    """One message on its way."""

    body: str
    name: str = ""

    def entry(self, number: int) -> dict[str, Any]:
        """Return what a call says of it."""
        entry: dict[str, Any] = {"Id": str(number), "MessageBody": self.body}
        if self.name:
            told = {"DataType": "String", "StringValue": self.name}
            entry["MessageAttributes"] = {NAME: told}
        return entry


class SqsBroker:
    """Messages in the queues of one account and region."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._urls: dict[str, str] = {}
        self._readings: dict[str, Reading] = {}
        self._held: dict[str, dict[str, BrokerMessage]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Take `sqs://region`; see `Address`."""
        try:
            return cls(Address.read(url))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(
                "BACKBURNER_TRANSPORT: an SQS URL is sqs://region?endpoint=…&prefix=…"
                f"&visibility=…&wait=…: {error}"
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
            pass  # what it holds is seen again when its time is over
        finally:
            self._readings.clear()
            self._held.clear()
            await self._stack.aclose()
            self._client = None

    async def ping(self) -> None:
        with suppress(_Missing):  # told by somebody who is there
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
        found = await self._readings[queue].receive(limit)
        held = self._held.setdefault(queue, {})
        held.update((message.handle, message) for message in found)
        return found

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
            fix = "look at the credentials and the network; see BACKBURNER_TRANSPORT"
            yield Finding(Status.FAIL, "sqs", f"{where}: {error}", fix)
            return
        yield Finding(Status.PASS, "sqs", f"{where} answers")
        yield _judged(self._address.visibility)

    async def _read(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        """Wait for the first messages; if there are as many as can be, ask for more."""
        found = await self._poll(queue, limit, self._address.wait)
        more = min(math.ceil(limit / TEN) - 1, AT_ONCE)
        if len(found) == TEN and more:
            polls = (self._poll(queue, TEN, 0) for _ in range(more))
            for polled in await asyncio.gather(*polls, return_exceptions=True):
                found += polled if isinstance(polled, list) else []
        return found

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
        return [_message(told) for told in answer.get("Messages", ())]

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
        """Tell what is to become of messages; what is ours no more is let be."""
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
        """Make a call for several messages, again for those that it failed for."""
        for _ in range(TRIES):
            async with self._turns:
                answer = await self._on(operation, queue, Entries=entries)
            failed = {
                told["Id"]
                for told in answer.get("Failed", ())
                if strict or not told["SenderFault"]
            }
            if not failed:
                return
            entries = [entry for entry in entries if entry["Id"] in failed]
        raise BrokerUnavailable(f"SQS did not take {len(entries)} messages")

    async def _on(
        self, operation: str, queue: str, *, wait: int = 0, **words: Any
    ) -> Any:
        """Make a call on a queue, which is made if it is not there."""
        name = self._name_of(queue)
        try:
            url = self._urls.get(name) or await self._look_up(queue)
            return await self._call(operation, wait=wait, QueueUrl=url, **words)
        except _Missing:
            self._urls.pop(name, None)
            url = await self._look_up(queue)
            return await self._call(operation, wait=wait, QueueUrl=url, **words)

    async def _look_up(self, queue: str) -> str:
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
                await self._look_up(queue + DEAD)
        self._urls[name] = answer["QueueUrl"]
        return self._urls[name]

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
    """There is no such queue."""


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        kind = _Missing if code in MISSING else BrokerUnavailable
        raise kind(f"SQS cannot be used: {code}") from None
    except (BotoCoreError, OSError, TimeoutError) as error:
        # The driver's text may hold the body of a message, and that is for no log.
        told = type(error).__name__
        raise BrokerUnavailable(f"SQS cannot be used: {told}") from None


def _message(told: Mapping[str, Any]) -> BrokerMessage:
    body = told["Body"].encode()
    if body == WORK_AVAILABLE:
        return BrokerMessage(WORK_AVAILABLE, told["ReceiptHandle"])
    named = told.get("MessageAttributes", {}).get(NAME, {}).get("StringValue")
    return BrokerMessage(body, told["ReceiptHandle"], named or told["MessageId"])


def _text(value: bytes) -> str:
    """Return what SQS takes of a text that may hold anything."""
    room = BATCH_BYTES - ROOM_BYTES
    return NOT_TEXT.sub("\ufffd", value[:room].decode("utf-8", "replace"))


def _batches(sent: Sequence[Sent]) -> Iterator[list[Sent]]:
    """Put together what goes in one call."""
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
    told = f"what is received is kept from others for {visibility} s"
    if visibility < SHORTEST_VISIBILITY:
        fix = "let visibility be 10 or more: a slow claim gets its hints twice"
        return Finding(Status.WARN, "sqs visibility", told, fix)
    return Finding(Status.PASS, "sqs visibility", told)
