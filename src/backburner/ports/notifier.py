"""How processes that share a store notify each other."""

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
    """A batch has ended, which callers may be waiting for."""


ALL: Final = ~Notification(0)


class Notifier(Protocol):
    """
    Notifies listeners in this process and in others that share the store.

    A notification is a hint: it may be lost, delayed or duplicated. It is sent after
    the commit that it announces. Listeners are called on the event loop, must not
    block, and must also poll.
    """

    def notify(self, what: Notification) -> None:
        """Call every listener, soon."""
        ...

    def listen(self, callback: Callable[[Notification], None]) -> Callable[[], None]:
        """Call `callback` at each notification; return a function that unsubscribes."""
        ...
