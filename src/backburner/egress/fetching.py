"""The production `Fetcher`: complete responses of limited size."""

import ssl
from collections.abc import Mapping

import httpcore2

from backburner.domain.webhooks.address import Reach, Target, check_callback
from backburner.domain.webhooks.outbound import headers_for, redirect
from backburner.egress.client import (
    IDLE_AT_MOST,
    IDLE_SECONDS,
    answered,
    read_headers,
    sent_headers,
    url_of,
)
from backburner.egress.guard import MOST, Guard
from backburner.egress.resolver import Resolve, SystemResolver
from backburner.ports.egress import Incoming, Outgoing, Silence, Unusable


class GuardedFetcher:
    """
    Sends GET and POST requests to allowed addresses.

    A body is counted while it is read, and reading stops at the limit. So an endless
    response costs no more memory than the limit, and no more time than `seconds`.
    """

    def __init__(
        self,
        reach: Reach,
        *,
        most: int,
        connect_seconds: float = 3.0,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """`most` is the largest body limit of any request."""
        self._reach = reach
        self._extensions = {"timeout": {"connect": connect_seconds}}
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trust or httpcore2.default_ssl_context(),
            max_connections=None,
            max_keepalive_connections=IDLE_AT_MOST,
            keepalive_expiry=IDLE_SECONDS,
            # Doubled, as a chunked body may have as many bytes of framing.
            network_backend=Guard(
                reach, resolve or SystemResolver(), most=MOST + 2 * most
            ),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def fetch(self, request: Outgoing) -> Incoming | Silence | Unusable:
        return await answered(self._followed(request), request.seconds)

    async def _followed(self, request: Outgoing) -> Incoming | Unusable:
        url, headers, left = request.url, request.headers, request.redirects
        before: Target | None = None
        while True:
            target = self._allowed(url, request)
            if target is None:
                return Unusable.NOT_ALLOWED
            if before is not None:
                headers = headers_for(headers, before, target)
            result = await self._sent(request, target, headers)
            if isinstance(result, Unusable | Incoming):
                return result
            if left == 0:
                return Unusable.REDIRECTS
            url, before, left = result, target, left - 1

    def _allowed(self, url: str, request: Outgoing) -> Target | None:
        try:
            target = check_callback(url, self._reach)
        except ValueError:
            return None
        is_listed = request.hosts is None or request.hosts.admits(target)
        return target if is_listed else None

    async def _sent(
        self, request: Outgoing, target: Target, headers: Mapping[str, str]
    ) -> Incoming | Unusable | str:
        """Send one request; return the response, or the URL that it redirects to."""
        async with self._pool.stream(
            request.method,
            url_of(target),
            headers=sent_headers(target, headers),
            content=None if request.method == "GET" else request.body,
            extensions=self._extensions,
        ) as response:
            answer_headers = read_headers(response.headers)
            location = redirect(target, response.status, answer_headers)
            if location is not None and request.redirects:
                return location
            body = await _read(response, answer_headers, request.limit)
        if body is None:
            return Unusable.TOO_LARGE
        return Incoming(response.status, answer_headers, body, str(target))


async def _read(
    response: httpcore2.Response, headers: Mapping[str, str], limit: int
) -> bytes | None:
    """Return the body; `None` if it exceeds the limit."""
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        return None
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)
