"""
The contract of a message broker, which announces queued jobs to workers.

A message says "queue Q has one more job"; the store decides at the claim which job it
is. Any other message on a queue comes from another program (`domain/message.py`).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from backburner.ports.finding import Finding

DEAD = "-dlq"
"""The suffix of the name of a queue's dead-letter queue."""
DEAD_DAYS = 7
"""How long a broker keeps dead letters; the store keeps them by its own settings."""


class BrokerMessage(NamedTuple):
    """A message received from a queue."""

    body: bytes
    handle: Any
    """What the broker needs to acknowledge the message."""
    id: str = ""
    """The id that its producer set; empty without one."""


class DeadLetter(NamedTuple):
    """A message for a queue's dead letters."""

    id: str
    body: bytes


class Broker(Protocol):
    """
    Delivers each message at least once, to one of the receivers.

    Queues have the names that Backburner gives them and are created at their first use,
    together with their dead letters (`DEAD`). If the broker is unavailable, every call
    raises `BrokerUnavailable` within seconds, and the next call reconnects.
    """

    async def open(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """
        Disconnect; unacknowledged messages are delivered to others.

        It is also called if `open` failed.
        """
        ...

    async def ping(self) -> None:
        """Return if the broker answers and accepts messages; raise otherwise."""
        ...

    async def publish(self, counts: Mapping[str, int]) -> None:
        """Publish this number of `WORK_AVAILABLE` messages on each queue, durably."""
        ...

    async def publish_dead_letters(
        self, queue: str, dead_letters: Sequence[DeadLetter]
    ) -> None:
        """Publish dead letters durably."""
        ...

    async def receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        """
        Wait for messages and return at most `limit`; may be cancelled.

        One call at a time per queue. Messages that are not returned become available to
        others within a second.
        """
        ...

    async def acknowledge(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        """Acknowledge messages; those of a closed connection are redelivered."""
        ...

    async def give_back(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        """Return messages to their queue; they may be delivered here again."""
        ...

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """Return the number of messages per queue; those in delivery may count."""
        ...

    def examine(self) -> AsyncIterator[Finding]:
        """Yield findings for operators: version, types of queues, policies."""
        ...
