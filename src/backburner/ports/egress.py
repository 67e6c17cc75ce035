"""The contract for requests to addresses given by users."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal, NamedTuple, Protocol

from backburner.domain.webhooks.outbound import AllowedHosts


class Answer(NamedTuple):
    """A receiver's response, up to the size limit."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""


class Silence(Enum):
    """Why there is no response."""

    REFUSED = auto()
    """
    No connection: not allowed, unknown, closed or silent.

    The cases look alike and take the same time, so that a caller cannot explore an
    internal network.
    """
    UNTRUSTED = auto()
    """The server's certificate does not match, or it does not support TLS."""
    TIMED_OUT = auto()
    """The connection succeeded, but the response was not complete in time."""
    CUT = auto()
    """The connection ended before the response, or the response is not HTTP."""


class Egress(Protocol):
    """
    Sends requests to public addresses only.

    An address is checked when the connection is opened. Redirects are not followed, no
    proxy is used, compressed responses are not decompressed, and a response is read up
    to a limit.
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
    """The total time limit: DNS, connections, redirects and the complete response."""
    limit: int
    """The maximum size of the response body in bytes."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hosts: AllowedHosts | None = None
    """The hosts it may reach, redirects included; `None`: all that are allowed."""
    redirects: int = 0
    """How many redirects are followed; one more is `Unusable.REDIRECTS`."""


class Incoming(NamedTuple):
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    url: str
    """The URL that sent it, after redirects."""


class Unusable(Enum):
    """Why there is no usable response, even if the request is repeated."""

    NOT_ALLOWED = auto()
    """The URL, or one that it redirects to, must not be called."""
    TOO_LARGE = auto()
    """The response exceeds the limit; no more than that was read."""
    REDIRECTS = auto()
    """It has more redirects than are followed."""


class Fetcher(Protocol):
    """
    Sends the requests of handlers, under the same guard as `Egress`.

    Each redirect is checked like the first URL, by its form and when it is connected
    to. No proxy is used and no compressed answer decompressed.
    """

    async def fetch(self, request: Outgoing) -> Incoming | Silence | Unusable:
        """Send a request; failures of the other server are returned, not raised."""
        ...
