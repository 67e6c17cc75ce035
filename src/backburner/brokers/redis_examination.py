"""What `doctor` asks of a Redis server: can it hold messages, and does it keep them."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from backburner.ports.finding import Finding, Status

OLDEST = (6, 2)
"""The first version that lets others have what a dead consumer held."""

AOF = ("aof_last_write_status", "aof_last_bgrewrite_status")
RDB = ("rdb_last_bgsave_status",)


async def examine(redis: Any) -> AsyncIterator[Finding]:
    """Look at the server's version, its role, its memory and its files."""
    try:
        info = await redis.info("everything")
    except (RedisError, OSError, TimeoutError) as error:
        fix = "start it, or correct BACKBURNER_TRANSPORT"
        told = f"it does not answer: {type(error).__name__}"
        yield Finding(Status.FAIL, "redis", told, fix)
        return
    with suppress(RedisError):  # those who host it may not let us look
        told = await redis.config_get("appendfsync")
        info |= {name: value for name, value in told.items() if value}
    for finding in judged(info):
        yield finding


def judged(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Say what the server's account of itself means for messages."""
    yield _server(info)
    yield _role(info)
    yield _memory(info)
    yield _persistence(info)


def _server(info: Mapping[str, Any]) -> Finding:
    version = str(info.get("redis_version", "0.0"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if parts < OLDEST:
        fix = "use Redis 6.2 or newer"
        return Finding(Status.FAIL, "redis", version, fix)
    if info.get("cluster_enabled"):
        fix = "use a server that is not part of a cluster"
        return Finding(Status.FAIL, "redis", f"{version}, a cluster", fix)
    return Finding(Status.PASS, "redis", version)


def _role(info: Mapping[str, Any]) -> Finding:
    role = str(info.get("role", "unknown"))
    if role == "slave":
        fix = "name the primary in BACKBURNER_TRANSPORT: a replica takes no writes"
        return Finding(Status.FAIL, "redis role", "replica", fix)
    return Finding(Status.PASS, "redis role", role)


def _memory(info: Mapping[str, Any]) -> Finding:
    policy, most = info.get("maxmemory_policy", "unknown"), info.get("maxmemory", 0)
    told = f"maxmemory {most or 'unlimited'}, {policy}"
    if most and str(policy).startswith("allkeys"):
        fix = (
            "set maxmemory-policy to noeviction: whole queues are thrown away when "
            "memory runs short, with other programs' messages in them"
        )
        return Finding(Status.FAIL, "redis memory", told, fix)
    return Finding(Status.PASS, "redis memory", told)


def _persistence(info: Mapping[str, Any]) -> Finding:
    is_appending = bool(info.get("aof_enabled"))
    statuses = AOF if is_appending else RDB
    failing = [name for name in statuses if info.get(name, "ok") != "ok"]
    if failing:
        fix = "look at its log and at the disk: it could not write its file"
        return Finding(Status.FAIL, "redis persistence", ", ".join(failing), fix)
    if not is_appending:
        fix = (
            "set appendonly to yes: with a restart it forgets messages of other "
            "programs (Backburner publishes its own again)"
        )
        return Finding(Status.WARN, "redis persistence", "appendonly is off", fix)
    sync = info.get("appendfsync", "everysec")
    told = f"appendonly is on, appendfsync {sync}"
    if sync == "no":
        fix = "set appendfsync to everysec: half a minute's messages could be lost"
        return Finding(Status.WARN, "redis persistence", told, fix)
    return Finding(Status.PASS, "redis persistence", told)
