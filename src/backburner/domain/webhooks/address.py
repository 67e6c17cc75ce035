"""
Decides which URLs and addresses given by users may be called.

The form of a URL is checked when it is given, and the address when it is connected to,
because the addresses of a name can change. A valid form is no guarantee.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, NamedTuple, Self, TypeAlias
from urllib.parse import SplitResult, urlsplit

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

LONGEST_URL: Final = 2048
PORTS: Final = (80, 443, 8443)
USUAL_PORTS: Final = {"http": 80, "https": 443}

_BARRED: Final = re.compile(r"[\x00-\x20\x7f\\]")
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.ASCII)
_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""
The only part of IPv6 that is assigned to public hosts.

NAT64 (`64:ff9b::/96`, `64:ff9b:1::/48`), site-local addresses (`fec0::/10`) and all
reserved ranges are outside it.
"""
_DENIED: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "100.64.0.0/10",  # carrier-grade NAT; metadata services of some clouds
        "168.63.129.16/32",  # a cloud's internal service, on a public address
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "2001::/32",  # Teredo: an IPv4 address inside
        "2002::/16",  # 6to4: likewise
        "3fff::/20",
    )
)


class Target(NamedTuple):
    """The parts of a URL, all of them ASCII."""

    scheme: str
    host: str
    port: int
    path: str
    """Including the query."""

    @property
    def netloc(self) -> str:
        """The host, and the port if it is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == USUAL_PORTS[self.scheme]
        return host if is_usual else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"


@dataclass(frozen=True, slots=True)
class Reach:
    """What may be called: public hosts by https, and what the operator allows."""

    is_plain_allowed: bool = False
    """Whether http is allowed for all hosts."""
    ports: tuple[int, ...] = PORTS
    networks: tuple[Network, ...] = ()
    """Networks that are allowed although they are not public."""
    hosts: frozenset[tuple[str, int | None]] = frozenset()
    """Hosts, optionally with a port, that are allowed by http and on any address."""

    @classmethod
    def read(
        cls,
        allowed: Iterable[str] = (),
        *,
        ports: tuple[int, ...] = PORTS,
        is_plain_allowed: bool = False,
    ) -> Self:
        """Parse hosts, `host:port`, addresses and networks; `ValueError` for others."""
        entries = [(text, _network(text)) for text in allowed]
        return cls(
            is_plain_allowed=is_plain_allowed,
            ports=ports,
            networks=tuple(network for _, network in entries if network is not None),
            hosts=frozenset(
                named_host(text) for text, network in entries if network is None
            ),
        )

    def vouches_for(self, host: str, port: int) -> bool:
        """Return whether the operator allowed this host or its address."""
        if not self.hosts.isdisjoint({(host, None), (host, port)}):
            return True
        try:
            return self._holds(_judged(host))
        except ValueError:
            return False

    def admits(self, address: str) -> bool:
        """Return whether an address may be connected to."""
        return self._holds(_judged(address)) or is_public(address)

    def _holds(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


def check_callback(url: str, reach: Reach) -> Target:
    """
    Check a URL given by a caller, as `check_url` does.

    A host that is evidently not public is refused at once: calls to it would fail.
    """
    target = _target(url)
    if not reach.vouches_for(target.host, target.port) and _is_inside(target.host):
        raise ValueError(
            "the URL's host is not public: to allow it, the operator of this "
            "server adds it to BACKBURNER_WEBHOOK_ALLOW"
        )
    return check_url(url, reach)


def check_url(url: str, reach: Reach) -> Target:
    """Parse a URL; raise a `ValueError` that says what is wrong with its form."""
    target = _target(url)
    if not reach.vouches_for(target.host, target.port):
        _check_usual(target, reach)
    return target


def _target(url: str) -> Target:
    if len(url) > LONGEST_URL:
        raise ValueError(f"the URL is longer than {LONGEST_URL} characters")
    if _BARRED.search(url):
        raise ValueError("the URL has spaces, control characters or backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("the URL has no valid host and port") from None
    if parts.scheme not in USUAL_PORTS:
        raise ValueError("the URL does not start with https://")
    if "@" in parts.netloc:
        raise ValueError("the URL contains a user name: remove it")
    port = USUAL_PORTS[parts.scheme] if port is None else port
    return Target(parts.scheme, _host(parts), port, _path(parts))


def _is_inside(host: str) -> bool:
    """Return whether a host is localhost or a literal non-public address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not is_public(host)
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """Return whether an address is public."""
    judged = _judged(address)
    if isinstance(judged, IPv6Address) and (
        judged not in _UNICAST or judged.scope_id is not None
    ):
        return False
    if not judged.is_global or judged.is_multicast or judged.is_reserved:
        return False
    return not any(judged in network for network in _DENIED)


def plain(address: str) -> str:
    """Normalise an address: an IPv4 address within IPv6 becomes IPv4."""
    return str(_judged(address))


def _judged(address: str) -> Address:
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


def _check_usual(target: Target, reach: Reach) -> None:
    if target.scheme != "https" and not reach.is_plain_allowed:
        raise ValueError(
            "the URL does not start with https://, and BACKBURNER_WEBHOOK_HTTP is off"
        )
    if target.port not in reach.ports:
        listed = ", ".join(map(str, reach.ports))
        raise ValueError(
            f"port {target.port} is not allowed: {listed} (BACKBURNER_WEBHOOK_PORTS)"
        )


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").lower().removesuffix(".")
    if "[" in parts.netloc:
        return _ipv6(host)
    if not host.isascii():
        import idna  # noqa: PLC0415 - large tables that are seldom needed

        try:
            host = idna.encode(host).decode()
        except UnicodeError:
            host = ""
    if not _NAME.fullmatch(host):
        raise ValueError("the URL has no valid host and port")
    return host


def _ipv6(host: str) -> str:
    try:
        address = IPv6Address(host)
    except ValueError:
        address = None
    if address is None or address.scope_id is not None:
        raise ValueError("the URL has no valid host and port")
    return str(address)


def _path(parts: SplitResult) -> str:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii():
        raise ValueError("the URL's path has characters that must be %-encoded")
    return path


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def named_host(text: str) -> tuple[str, int | None]:
    """Parse `host` or `host:port` by the rules of URLs; `ValueError` if invalid."""
    try:
        parts = urlsplit(f"//{text}")
        named = _host(parts), parts.port
    except ValueError:
        named = None
    if named is None or parts.netloc != text or "@" in text or _BARRED.search(text):
        raise ValueError(f"{text!r} is not a host, host:port, address or network")
    return named
