"""The `Egress` of production: HTTP/1.1 over a guarded network, and nothing more."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

import httpcore2

from backburner.domain.address import Reach, Target, check_url
from backburner.egress.guard import Enough, Guard, NoConnection
from backburner.egress.resolver import Resolve, SystemResolver
from backburner.ports.egress import Answer, Silence

IDLE_SECONDS: Final = 2.0
"""How long a connection is kept: less than usual servers keep theirs."""
IDLE_AT_MOST: Final = 20


class GuardedEgress:
    """
    Posts to whatever is within reach.

    It knows no redirects, no cookies, no proxies and no compression: nothing of that
    has to be switched off. Connections are not limited here, so that receivers do not
    wait for each other.
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
        """Let go of the connections."""
        await self._pool.aclose()

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> Answer | Silence:
        try:
            target = check_url(url, self._reach)
        except ValueError:
            return Silence.REFUSED  # what is allowed may have changed since
        try:
            async with asyncio.timeout(self._seconds):
                return await self._post(target, headers, body)
        except (TimeoutError, httpcore2.TimeoutException):
            return Silence.TIMED_OUT
        except NoConnection:
            return Silence.REFUSED
        except httpcore2.ConnectError:
            return Silence.UNTRUSTED  # after the connection: TLS
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            return Silence.CUT

    async def _post(
        self, target: Target, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        url = httpcore2.URL(
            scheme=target.scheme.encode(),
            host=target.host.encode(),
            port=target.port,
            target=target.path.encode(),
        )
        sent = {
            "Host": target.netloc,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            **headers,
        }
        async with self._pool.stream(
            "POST",
            url,
            headers=[(name.encode(), value.encode()) for name, value in sent.items()],
            content=body,
            extensions=self._extensions,
        ) as response:
            try:
                async for _ in response.aiter_stream():
                    pass
            except Enough:
                pass
            return Answer(response.status, _headers(response.headers))


def _headers(raw: list[tuple[bytes, bytes]]) -> Mapping[str, str]:
    return {name.decode("latin-1").lower(): v.decode("latin-1") for name, v in raw}
