"""The contract for requests to addresses that users gave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal, NamedTuple, Protocol

from backburner.domain.webhooks.outbound import AllowedHosts


class Answer(NamedTuple):
    """A receiver's answer, up to the size limit."""

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
    Sends requests to public addresses only.

    An address is checked when it is connected to. No redirect is followed, no proxy
    used, no compressed answer decompressed; the answer is read up to a limit.
    """

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> Answer | Silence:
        """Post a body; failures of the receiver are returned, not raised."""
        ...


Method = Literal["GET", "PATCH", "POST"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request of a handler, with its limits."""

    method: Method
    url: str
    seconds: float
    """For everything: names, connections, redirects and the whole answer."""
    limit: int
    """The most bytes of the answer's body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hosts: AllowedHosts | None = None
    """The hosts it may reach, redirects included; `None`: all that are allowed."""
    redirects: int = 0
    """How many redirects are followed; one more is `Unusable.REDIRECTS`."""


class Incoming(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    """By names in small letters."""
    body: bytes
    url: str
    """Where it came from, after redirects."""


class Unusable(Enum):
    """Why another attempt would get no answer either."""

    NOT_ALLOWED = auto()
    """The URL, or one that it redirects to, may not be asked."""
    TOO_LARGE = auto()
    """The answer has more bytes than are wanted; no more than those were read."""
    REDIRECTS = auto()
    """It redirects more often than is followed."""


class Fetcher(Protocol):
    """
    Sends the requests of handlers, under the same guard as `Egress`.

    Each redirect is checked like the first URL, by its form and when it is connected
    to. No proxy is used and no compressed answer decompressed.
    """

    async def fetch(self, request: Outgoing) -> Incoming | Silence | Unusable:
        """Send a request; failures of the other server are returned, not raised."""
        ...
