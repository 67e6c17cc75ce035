"""
How a worker learns of work, where a message broker and not the store tells it.

A message says "queue Q has one more"; which job it is, the store decides at the claim.
Whatever else lies on a queue was put there by another program (`domain/message.py`).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from backburner.ports.finding import Finding

DEAD = "-dlq"
"""What the name of a queue's dead letters ends with."""
DEAD_DAYS = 7
"""How long a broker keeps dead letters; the store keeps them by its own settings."""


class BrokerMessage(NamedTuple):
    """What lay on a queue."""

    body: bytes
    handle: Any
    """What the broker needs in order to forget it."""
    id: str = ""
    """What its producer called it; empty if it has no name."""


class DeadLetter(NamedTuple):
    """What goes to a queue's dead letters."""

    id: str
    body: bytes


class Broker(Protocol):
    """
    Hands out messages, each at least once, to one of those who receive.

    Queues have the names that Backburner gives them and are made at their first use,
    their dead letters (`DEAD`) with them. Every call raises `BrokerUnavailable` if the
    broker cannot be had, within seconds, and connects again by itself at the next.
    """

    async def open(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """
        Part; what was received and not acknowledged goes to others.

        It is also asked to if it could not be opened.
        """
        ...

    async def ping(self) -> None:
        """Return if the broker answers and would take messages."""
        ...

    async def publish(self, counts: Mapping[str, int]) -> None:
        """Put so many messages (`WORK_AVAILABLE`) on each queue, durable."""
        ...

    async def publish_dead_letters(
        self, queue: str, dead_letters: Sequence[DeadLetter]
    ) -> None:
        """Put letters among a queue's dead letters; the broker has them for good."""
        ...

    async def receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        """
        Wait for messages and return at most `limit`; may be cancelled.

        One call at a time per queue. Nothing is kept from others for more than a second
        unless it was returned.
        """
        ...

    async def acknowledge(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        """Have messages forgotten; those of a connection that is gone come again."""
        ...

    async def give_back(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        """Let others have messages, soon; they may come here again."""
        ...

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """Return how many messages wait on each, those being handed out or not."""
        ...

    def examine(self) -> AsyncIterator[Finding]:
        """Yield what an operator should know: version, kinds of queues, policies."""
        ...
