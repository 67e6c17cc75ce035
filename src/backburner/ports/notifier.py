"""How processes that share a store wake each other."""

from collections.abc import Callable
from enum import IntFlag
from typing import Final, Protocol


class Notification(IntFlag):
    """What may have changed."""

    WORK = 1
    """A queue may have one more job."""
    EVENTS = 2
    """A job's history may have grown."""
    CANCELLED = 4
    """A running job may have been taken from its worker."""
    SCHEDULE = 8
    """A job may be due earlier than was known."""
    ENDED = 16
    """A batch has ended: whoever waits for that need not wait any longer."""


ALL: Final = ~Notification(0)


class Notifier(Protocol):
    """
    Wakes whoever listens, in this process and in the others that share the store.

    A notification is a hint: it may be lost, late or doubled, and is never proof.
    It is sent after the commit it tells of. Listeners are called on the event loop,
    must not block, and poll besides.
    """

    def notify(self, what: Notification) -> None:
        """Call every listener, soon."""
        ...

    def listen(self, callback: Callable[[Notification], None]) -> Callable[[], None]:
        """Call `callback` at each notification; return a function that unsubscribes."""
        ...
