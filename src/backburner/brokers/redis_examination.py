"""Checks of a Redis server for `doctor`: can it store messages durably."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from backburner.ports.finding import Finding, Status

OLDEST = (6, 2)
"""The first version that can hand a dead consumer's messages to others."""

AOF = ("aof_last_write_status", "aof_last_bgrewrite_status")
RDB = ("rdb_last_bgsave_status",)


async def examine(redis: Any) -> AsyncIterator[Finding]:
    """Check the server's version, its role, its memory and its persistence."""
    try:
        info = await redis.info("everything")
    except (RedisError, OSError, TimeoutError) as error:
        fix = "start the server, or correct BACKBURNER_TRANSPORT"
        reason = f"it does not answer: {type(error).__name__}"
        yield Finding(Status.FAIL, "redis", reason, fix)
        return
    with suppress(RedisError):  # hosted servers may forbid it
        options = await redis.config_get("appendfsync")
        info |= {name: value for name, value in options.items() if value}
    for finding in judged(info):
        yield finding


def judged(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Report on a server, given its output of INFO."""
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
        fix = "set BACKBURNER_TRANSPORT to the primary: a replica accepts no writes"
        return Finding(Status.FAIL, "redis role", "replica", fix)
    return Finding(Status.PASS, "redis role", role)


def _memory(info: Mapping[str, Any]) -> Finding:
    policy, most = info.get("maxmemory_policy", "unknown"), info.get("maxmemory", 0)
    usage = f"maxmemory {most or 'unlimited'}, {policy}"
    if most and str(policy).startswith("allkeys"):
        fix = (
            "set maxmemory-policy to noeviction: when memory runs short, whole queues "
            "are deleted, including messages of other programs"
        )
        return Finding(Status.FAIL, "redis memory", usage, fix)
    return Finding(Status.PASS, "redis memory", usage)


def _persistence(info: Mapping[str, Any]) -> Finding:
    is_appending = bool(info.get("aof_enabled"))
    statuses = AOF if is_appending else RDB
    failing = [name for name in statuses if info.get(name, "ok") != "ok"]
    if failing:
        fix = "check the server's log and its disk: it could not write its file"
        return Finding(Status.FAIL, "redis persistence", ", ".join(failing), fix)
    if not is_appending:
        fix = (
            "set appendonly to yes: a restart loses messages of other programs "
            "(Backburner publishes its own again)"
        )
        return Finding(Status.WARN, "redis persistence", "appendonly is off", fix)
    sync = info.get("appendfsync", "everysec")
    settings = f"appendonly is on, appendfsync {sync}"
    if sync == "no":
        fix = "set appendfsync to everysec: up to half a minute of messages may be lost"
        return Finding(Status.WARN, "redis persistence", settings, fix)
    return Finding(Status.PASS, "redis persistence", settings)
