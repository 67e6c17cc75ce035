"""The production `Egress`: HTTP/1.1 over connections to checked addresses."""

import asyncio
import ssl
from collections.abc import Awaitable, Mapping
from typing import Final, TypeVar

import httpcore2

from backburner.domain.webhooks.address import Reach, Target, check_url
from backburner.egress.guard import Enough, Guard, NoConnection
from backburner.egress.resolver import Resolve, SystemResolver
from backburner.ports.egress import Answer, Silence

T = TypeVar("T")

IDLE_SECONDS: Final = 2.0
"""How long idle connections are kept: less than most servers keep them."""
IDLE_AT_MOST: Final = 20


class GuardedEgress:
    """
    Posts to allowed addresses.

    It does not support redirects, cookies, proxies or compression. The number of
    connections is not limited here, so that receivers do not wait for each other.
    """

    def __init__(
        self,
        reach: Reach,
        *,
        connect_seconds: float = 3.0,
        total_seconds: float = 15.0,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._reach = reach
        self._seconds = total_seconds
        self._extensions = {"timeout": {"connect": connect_seconds}}
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trust or httpcore2.default_ssl_context(),
            max_connections=None,
            max_keepalive_connections=IDLE_AT_MOST,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=Guard(reach, resolve or SystemResolver()),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> Answer | Silence:
        try:
            target = check_url(url, self._reach)
        except ValueError:
            return (
                Silence.REFUSED
            )  # the rules may have changed since the URL was accepted
        return await answered(self._post(target, headers, body), self._seconds)

    async def _post(
        self, target: Target, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        async with self._pool.stream(
            "POST",
            url_of(target),
            headers=sent_headers(target, headers),
            content=body,
            extensions=self._extensions,
        ) as response:
            try:
                async for _ in response.aiter_stream():
                    pass
            except Enough:
                pass
            return Answer(response.status, read_headers(response.headers))


async def answered(work: Awaitable[T], seconds: float) -> T | Silence:
    """Return the result of a request within a time limit, or why there is none."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except (TimeoutError, httpcore2.TimeoutException):
        return Silence.TIMED_OUT
    except NoConnection:
        return Silence.REFUSED
    except httpcore2.ConnectError:
        return Silence.UNTRUSTED  # connected, but TLS failed
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
        return Silence.CUT


def url_of(target: Target) -> httpcore2.URL:
    """Convert a URL for the HTTP library."""
    return httpcore2.URL(
        scheme=target.scheme.encode(),
        host=target.host.encode(),
        port=target.port,
        target=target.path.encode(),
    )


def sent_headers(
    target: Target, headers: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """Return all headers of a request: the given ones and the defaults."""
    usual = {"Host": target.netloc, "Accept": "*/*", "Accept-Encoding": "identity"}
    given = {name.lower() for name in headers}
    sent = {name: value for name, value in usual.items() if name.lower() not in given}
    return [(n.encode(), v.encode()) for n, v in (sent | dict(headers)).items()]


def read_headers(raw: list[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Return headers by lower-case name."""
    return {name.decode("latin-1").lower(): v.decode("latin-1") for name, v in raw}
