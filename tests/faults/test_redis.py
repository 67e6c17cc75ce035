"""A Redis server that fails its clients, and a load that must not notice."""

import asyncio

import pytest
from redis.asyncio import Redis

from backburner import Backburner, Context, capability
from backburner.domain.jobs.job import JobState
from backburner.settings import Settings

QUEUE = "default"


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


@pytest.fixture
async def redis(own_redis):
    """The server's own tool; what the last test left is gone."""
    async with Redis.from_url(own_redis.url) as redis:
        await redis.flushall()
        yield redis


@pytest.fixture
async def told(redis, own_redis):
    """The settings of a process that the broker tells of work."""
    await redis.ping()
    return {"BACKBURNER_TRANSPORT": own_redis.url}


@pytest.fixture
async def caller(fleet, caller_of, told):
    """A caller that submits without pause to a fleet of three processes."""
    server = await fleet.serve("breakable", "--no-worker", **told).ready()
    for _ in range(2):
        await fleet.worker("unswept", **told).ready()
    caller = caller_of(server)
    caller.begin(pause=0.04)
    return caller


@pytest.fixture
def flushed(fleet, caller_of, redis, told, eventually):
    """Have a broker told of jobs, and flushed when many of them have run."""

    async def flush(module, count):
        server = await fleet.serve(module, "--no-worker", **told).ready()
        caller = caller_of(server)
        for _ in range(count // 50):
            await asyncio.gather(*[caller.submit() for _ in range(50)])

        async def has_all():
            return count <= await redis.xlen(QUEUE)  # a look may add a few

        async def has_run_many():
            return await redis.xlen(QUEUE) < count * 0.8

        await eventually(has_all)
        for _ in range(2):
            fleet.worker(module, **told)
        await eventually(has_run_many)
        left = await redis.xlen(QUEUE)
        await redis.flushall()
        return caller, left

    return flush


@pytest.mark.parametrize("many", [500, pytest.param(2_000, marks=pytest.mark.chaos)])
async def test_a_flush_in_the_middle_of_many_jobs_loses_none(flushed, client, many):
    caller, left = await flushed("unswept", many)

    assert many / 2 < left < many, "it was flushed in the middle"
    assert many == await caller.all_is_well(client)


@pytest.mark.thorough
async def test_without_looking_a_flush_strands_them(flushed, client):
    _, left = await flushed("forgetful", 400)
    ended = await client.ended(client.ledger.acknowledged[-40:], within=3)

    assert left > 0
    assert JobState.QUEUED in {job.state for job in ended}


async def test_a_server_that_is_killed_and_comes_back_loses_nothing(
    caller, client, own_redis, ticks
):
    async for _ in ticks(1, 2):
        await asyncio.to_thread(own_redis.kill)
        before = len(caller.answers)
        async for _ in ticks(1, 1):
            assert len(caller.answers) > before, "no submit is answered without it"
        await asyncio.to_thread(own_redis.start)
    async for _ in ticks(1, 1):
        pass

    assert await caller.all_is_well(client) > 50


UNKIND = [
    ("CLIENT", "PAUSE", 3_000, "ALL"),
    *[("CLIENT", "KILL", "TYPE", "normal")] * 4,
    ("CONFIG", "SET", "maxmemory", "1"),
    ("CONFIG", "SET", "maxmemory", "0"),
    ("REPLICAOF", "127.0.0.1", "9"),
    ("REPLICAOF", "NO", "ONE"),
]
"""It answers nobody, closes every connection, is out of memory, takes no writes."""


@pytest.mark.thorough
async def test_whatever_a_server_does_to_its_clients_nothing_is_lost(
    caller, client, redis, ticks
):
    for unkind in UNKIND:
        await redis.execute_command(*unkind)
        before = len(caller.answers)
        async for _ in ticks(1, 1):
            assert len(caller.answers) > before, "no submit is answered meanwhile"

    assert await caller.all_is_well(client) > 50


@capability("echo")
async def echo(_ctx: Context, value: int) -> int:
    return value


REFUSALS = [("maxmemory", "OOM"), ("min-replicas-to-write", "NOREPLICAS")]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_server_that_refuses_writes_counts_as_down(
    redis, told, tmp_path, eventually, capsys, refusal
):
    setting, error = refusal
    settings = Settings(
        store=f"sqlite:///{tmp_path / 'jobs.db'}",
        transport=told["BACKBURNER_TRANSPORT"],
        grace_seconds=0,
        poll_seconds=0.2,
    )

    async def has_refused_often():
        counts = (await redis.info("errorstats")).get(f"errorstat_{error}", {})
        return counts.get("count", 0) >= 6

    async def is_back():
        return not backburner.engine.is_degraded

    async with Backburner(settings, capabilities=[echo]) as backburner:
        await backburner.start_worker()
        await redis.config_resetstat()
        await redis.config_set(setting, 1)
        try:
            for _ in range(12):
                assert 7 == await (await backburner.submit(echo, 7)).result()
            await eventually(has_refused_often)
            assert backburner.engine.is_degraded
        finally:
            await redis.config_set(setting, 0)
        await eventually(is_back)
        lines = capsys.readouterr().err

        assert 1 == lines.count('"broker lost"'), lines
        assert 7 == await (await backburner.submit(echo, 7)).result()
