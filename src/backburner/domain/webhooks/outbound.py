"""
Requests of handlers to other servers: allowed hosts and redirects.

The addresses of a host are checked elsewhere, at the time of the connection.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urljoin

from backburner.domain.webhooks.address import Target, named_host

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
KEPT_ELSEWHERE: Final = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that are sent on to another origin; any other may be a credential."""


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The hosts that a call may reach, out of those that the operator allows."""

    exact: frozenset[tuple[str, int | None]] = frozenset()
    suffixes: tuple[str, ...] = ()
    """Domain suffixes, each with its leading dot."""

    @classmethod
    def read(cls, entries: Iterable[str]) -> Self:
        """Parse `host`, `host:port` and `*.domain`; `ValueError` for anything else."""
        listed = list(entries)
        return cls(
            frozenset(named_host(text) for text in listed if text[:2] != "*."),
            tuple(f".{_domain(text)}" for text in listed if text[:2] == "*."),
        )

    def admits(self, target: Target) -> bool:
        """Return whether a URL's host is allowed."""
        host = target.host
        if not self.exact.isdisjoint({(host, None), (host, target.port)}):
            return True
        return host.endswith(self.suffixes) if self.suffixes else False


def redirect(target: Target, status: int, headers: Mapping[str, str]) -> str | None:
    """Return the absolute URL of a redirect; `None` if the response is none."""
    location = headers.get("location")
    if status not in REDIRECTS or location is None:
        return None
    return urljoin(str(target), location)


def headers_for(
    headers: Mapping[str, str], before: Target, after: Target
) -> Mapping[str, str]:
    """Return the headers for a redirect: no credentials for another origin."""
    if before[:3] == after[:3]:  # scheme, host and port
        return headers
    return {name: v for name, v in headers.items() if name.lower() in KEPT_ELSEWHERE}


def _domain(text: str) -> str:
    host, port = named_host(text.removeprefix("*."))
    if port is not None:
        raise ValueError(f"{text!r} has a port: leave it out")
    return host
