"""The address, credentials and timeouts of a client's connection."""

import os
import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpx2

from backburner.client.dialogue import SILENCE_SECONDS, Open, SendRequest, unreachable
from backburner.client.errors import Denied

DEFAULT_URL: Final = "http://127.0.0.1:8765"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class Connection:
    """One server, one key and one timeout, for both clients."""

    def __init__(self, url: str | None, api_key: str | None, timeout: float) -> None:
        self.url = (url or os.environ.get("BACKBURNER_URL") or DEFAULT_URL).rstrip("/")
        self._timeout = timeout
        self._headers = _credentials(
            api_key or os.environ.get("BACKBURNER_API_KEY") or ""
        )
        try:
            parsed = httpx2.URL(self.url)
        except httpx2.InvalidURL as error:
            raise unreachable(self.url, error) from error
        # A proxy is not used for connections to this machine.
        self._trust_env = parsed.host not in _LOOPBACK
        self._is_plain = parsed.scheme == "http" and not self._trust_env

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the HTTP client."""
        return {
            "base_url": self.url,
            "timeout": self._timeout,
            "headers": self._headers,
            "trust_env": self._trust_env,
            # Loading all certificate authorities takes longer than most requests. A
            # connection without TLS gets an empty context instead.
            "verify": not self._is_plain or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        }

    def request(self, ask: SendRequest) -> dict[str, Any]:
        """Return the arguments of one request."""
        return {
            "method": ask.method,
            "url": ask.path,
            # An empty mapping would remove the query of the path.
            "params": ask.params or None,
            "headers": ask.headers,
            "content": ask.content,
            "timeout": self._timeout + ask.wait,
        }

    def stream(self, opening: Open) -> dict[str, Any]:
        """Return the arguments of one event stream."""
        return {
            "url": opening.path,
            "headers": opening.headers,
            "timeout": httpx2.Timeout(self._timeout, read=SILENCE_SECONDS),
        }


def _credentials(api_key: str) -> Mapping[str, str]:
    if not api_key:
        return {}
    if not api_key.isascii() or not api_key.isprintable():
        raise Denied("the API key has invalid characters", code="BAD_API_KEY")
    return {"Authorization": f"Bearer {api_key}"}
