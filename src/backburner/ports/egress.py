"""The way out: requests to addresses that users gave us."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol


class Answer(NamedTuple):
    """What a receiver said: all of it was read, or as much as is ever read."""

    status: int
    headers: Mapping[str, str]
    """By names in small letters."""


class Silence(Enum):
    """Why there is no answer."""

    REFUSED = auto()
    """
    There was no connection: not allowed, unknown, closed or silent.

    Nobody is told which, and each takes the same time, so that nobody can feel his way
    around inside.
    """
    UNTRUSTED = auto()
    """The other side is not who its name says, or speaks no TLS."""
    TIMED_OUT = auto()
    """It was connected, and the answer was not whole in time."""
    CUT = auto()
    """The connection ended before the answer did, or the answer is no HTTP."""


class Egress(Protocol):
    """
    Sends requests that may not reach everything.

    An address is judged when it is connected to. No redirect is followed, no proxy
    asked, no compressed answer unpacked; only so much of an answer is read.
    """

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> Answer | Silence:
        """Post a body as it is; what goes wrong outside is an answer, too."""
        ...
