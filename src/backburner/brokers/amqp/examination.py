"""
What `doctor` asks of a RabbitMQ server: does it keep messages, and will it go on to.

AMQP tells the version and the alarms. What kind the queues are and which policies bear
on them is told by the management page's API alone, where that is switched on.
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
    "message-ttl": "a time to live",
    "expires": "an end when nobody uses them",
    "max-length": "a greatest length",
    "max-length-bytes": "a greatest length",
    "delivery-limit": "a delivery limit",
}
"""Policies by which a queue, or a message in it, may go before it was received."""


async def examine(url: URL) -> AsyncIterator[Finding]:
    """Look at the server's version, its alarms, its queues and their policies."""
    link = Link(url)  # of its own: it sends a message, and others may be sending
    try:
        session = await link.session()
        yield _server(session.version)
        yield await _alarms(session)
        async for finding in _looked_at(url, session.version):
            yield finding
    except BrokerUnavailable as error:
        fix = "start it, or correct BACKBURNER_TRANSPORT"
        yield Finding(Status.FAIL, "rabbitmq", str(error), fix)
    finally:
        await link.close()


async def _looked_at(url: URL, version: tuple[int, ...]) -> AsyncIterator[Finding]:
    try:
        queues, *policies = await _ask(url, "queues", "policies", "operator-policies")
    except (httpx2.HTTPError, ValueError) as error:
        told = f"the management API cannot be asked: {type(error).__name__}"
        yield Finding(Status.PASS, "rabbitmq queues", told)
        return
    for finding in judged(queues, policies, version):
        yield finding


def judged(
    queues: Rows, policies: Sequence[Rows], version: tuple[int, ...]
) -> Iterator[Finding]:
    """Say what the queues that have dead letters beside them, which are ours, are."""
    names = {queue["name"] for queue in queues}
    ours = [queue for queue in queues if f"{queue['name']}{DEAD}" in names]
    troubles = [
        finding
        for queue in ours
        for finding in [*_kind(queue, version), *_drops(queue, policies)]
    ]
    yield from troubles
    if not troubles:
        told = f"{len(ours)}, all durable and without policies that drop messages"
        yield Finding(Status.PASS, "rabbitmq queues", told)


def _server(version: tuple[int, ...]) -> Finding:
    told = ".".join(map(str, version))
    if not version:
        fix = "what it does is not known here; RabbitMQ 3.10 or newer is"
        return Finding(Status.WARN, "rabbitmq", "another server", fix)
    if version < QUORUM_TTL:
        fix = "use RabbitMQ 3.10 or newer: queues are on one node only"
        return Finding(Status.WARN, "rabbitmq", told, fix)
    return Finding(Status.PASS, "rabbitmq", told)


async def _alarms(session: Session) -> Finding:
    if alarm := await session.alarm():
        fix = (
            "give it memory or disk: no hints get in, workers poll the store meanwhile"
        )
        return Finding(Status.FAIL, "rabbitmq alarms", alarm, fix)
    return Finding(Status.PASS, "rabbitmq alarms", "none")


def _kind(queue: Mapping[str, Any], version: tuple[int, ...]) -> Iterator[Finding]:
    name = f"rabbitmq queue {queue['name']}"
    if not queue.get("durable", True):
        fix = "delete it: it is made again, and then outlives a restart"
        yield Finding(Status.WARN, name, "not durable", fix)
    elif queue.get("type") == "classic" and version >= QUORUM:
        fix = "delete it when it is empty: it is made again as a quorum queue"
        yield Finding(Status.WARN, name, "classic, on one node", fix)


def _drops(queue: Mapping[str, Any], policies: Sequence[Rows]) -> Iterator[Finding]:
    name = queue["name"]
    arguments = {k: v for k, v in (queue.get("arguments") or {}).items() if v != -1}
    keys = {key.removeprefix("x-") for key in arguments}
    for rows in policies:
        bearing = [row for row in rows if re.search(row["pattern"], name)]
        keys.update(max(bearing, key=_priority, default=NONE)["definition"])
    for key in sorted(DROPPING.keys() & keys):
        fix = f"take {key} away from it: other programs' messages may be dropped"
        told = f"it has {DROPPING[key]}"
        yield Finding(Status.WARN, f"rabbitmq queue {name}", told, fix)


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
