"""
Checks of a RabbitMQ server for `doctor`: does it keep messages, and can it accept more.

AMQP reports the version and the alarms. The types of the queues and their policies are
available only from the API of the management plugin, if it is enabled.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx2
from yarl import URL

from backburner.brokers.amqp.link import QUORUM, QUORUM_TTL, Link, Session
from backburner.domain.errors import BrokerUnavailable
from backburner.ports.broker import DEAD
from backburner.ports.finding import Finding, Status

Rows: TypeAlias = Sequence[Mapping[str, Any]]

MANAGEMENT = {"amqp": ("http", 15_672), "amqps": ("https", 15_671)}
MANAGEMENT_SECONDS = 3.0
NONE: Mapping[str, Any] = {"definition": {}}
DROPPING = {
    "message-ttl": "a message TTL",
    "expires": "an expiry when it is unused",
    "max-length": "a maximum length",
    "max-length-bytes": "a maximum length",
    "delivery-limit": "a delivery limit",
}
"""Policies that can delete a queue or its messages before they are received."""


async def examine(url: URL) -> AsyncIterator[Finding]:
    """Check the server's version, its alarms, its queues and their policies."""
    link = Link(url)  # a connection of its own, as it sends a message
    try:
        session = await link.session()
        yield _server(session.version)
        yield await _alarms(session)
        async for finding in _looked_at(url, session.version):
            yield finding
    except BrokerUnavailable as error:
        fix = "start the server, or correct BACKBURNER_TRANSPORT"
        yield Finding(Status.FAIL, "rabbitmq", str(error), fix)
    finally:
        await link.close()


async def _looked_at(url: URL, version: tuple[int, ...]) -> AsyncIterator[Finding]:
    try:
        queues, *policies = await _ask(url, "queues", "policies", "operator-policies")
    except (httpx2.HTTPError, ValueError) as error:
        reason = f"the management API is not available: {type(error).__name__}"
        yield Finding(Status.PASS, "rabbitmq queues", reason)
        return
    for finding in judged(queues, policies, version):
        yield finding


def judged(
    queues: Rows, policies: Sequence[Rows], version: tuple[int, ...]
) -> Iterator[Finding]:
    """Report on Backburner's queues: those that have a queue of dead letters."""
    names = {queue["name"] for queue in queues}
    ours = [queue for queue in queues if f"{queue['name']}{DEAD}" in names]
    troubles = [
        finding
        for queue in ours
        for finding in [*_kind(queue, version), *_drops(queue, policies)]
    ]
    yield from troubles
    if not troubles:
        summary = f"{len(ours)}, all durable and without policies that drop messages"
        yield Finding(Status.PASS, "rabbitmq queues", summary)


def _server(version: tuple[int, ...]) -> Finding:
    number = ".".join(map(str, version))
    if not version:
        fix = "other servers are not tested: use RabbitMQ 3.10 or newer"
        return Finding(Status.WARN, "rabbitmq", "not RabbitMQ", fix)
    if version < QUORUM_TTL:
        fix = "use RabbitMQ 3.10 or newer: queues are on one node only"
        return Finding(Status.WARN, "rabbitmq", number, fix)
    return Finding(Status.PASS, "rabbitmq", number)


async def _alarms(session: Session) -> Finding:
    if alarm := await session.alarm():
        fix = (
            "add memory or disk space: until then messages are not accepted, and "
            "workers poll the store"
        )
        return Finding(Status.FAIL, "rabbitmq alarms", alarm, fix)
    return Finding(Status.PASS, "rabbitmq alarms", "none")


def _kind(queue: Mapping[str, Any], version: tuple[int, ...]) -> Iterator[Finding]:
    name = f"rabbitmq queue {queue['name']}"
    if not queue.get("durable", True):
        fix = "delete the queue: Backburner creates it again as a durable one"
        yield Finding(Status.WARN, name, "not durable", fix)
    elif queue.get("type") == "classic" and version >= QUORUM:
        fix = "delete the queue when it is empty: it is created again as a quorum queue"
        yield Finding(Status.WARN, name, "classic, on one node", fix)


def _drops(queue: Mapping[str, Any], policies: Sequence[Rows]) -> Iterator[Finding]:
    name = queue["name"]
    arguments = {k: v for k, v in (queue.get("arguments") or {}).items() if v != -1}
    keys = {key.removeprefix("x-") for key in arguments}
    for rows in policies:
        matching = [row for row in rows if re.search(row["pattern"], name)]
        keys.update(max(matching, key=_priority, default=NONE)["definition"])
    for key in sorted(DROPPING.keys() & keys):
        fix = f"remove {key}: messages of other programs may be dropped"
        message = f"it has {DROPPING[key]}"
        yield Finding(Status.WARN, f"rabbitmq queue {name}", message, fix)


def _priority(policy: Mapping[str, Any]) -> int:
    return int(policy.get("priority", 0))


async def _ask(url: URL, *kinds: str) -> list[Rows]:
    scheme, port = MANAGEMENT[url.scheme]
    port = int(url.query.get("management", port))
    vhost = quote(url.path.removeprefix("/") or "/", safe="")
    async with httpx2.AsyncClient(
        base_url=f"{scheme}://{url.host}:{port}/api/",
        auth=(url.user or "guest", url.password or "guest"),
        timeout=MANAGEMENT_SECONDS,
        trust_env=False,
    ) as client:
        answers = [await client.get(f"{kind}/{vhost}") for kind in kinds]
    return [answer.raise_for_status().json() for answer in answers]
