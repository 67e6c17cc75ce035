"""
Message brokers behind a network that fails.

What they do of themselves is in tests/faults. PostgreSQL is well here.
"""

import secrets
from urllib.parse import urlsplit, urlunsplit

import pytest

from backburner.testing.proxy import Proxy
from tests.chaos.conftest import finished

MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


def private(url):
    return {"BACKBURNER_TRANSPORT": f"private:chaos-{secrets.token_hex(4)}-:{url}"}


async def a_fleet(fleet, caller_of, settings):
    """Start a server and two workers, and a caller that submits without pause."""
    server = await fleet.serve("breakable", "--no-worker", **settings).ready()
    for _ in range(2):
        await fleet.worker(**settings).ready()
    caller = caller_of(server)
    caller.begin()
    return caller


async def judge(experiment, client, caller):
    """Let the load end; every submit was answered, every job ended once."""
    await caller.pause()
    seen = sorted({status for status, _ in caller.answers})
    experiment.found("every submit is answered 202", seen == [202], seen=seen)
    await experiment.drain(client)
    await experiment.judge(client)


@pytest.fixture(params=["rabbitmq", "redis"])
async def wire(request, experiment):
    """A network before a broker."""
    experiment.on(f"postgres+{request.param}")
    parts = urlsplit(request.getfixturevalue(f"{request.param}_url"))
    async with Proxy(parts.hostname, parts.port, seed=experiment.seed) as proxy:
        user, at, _ = parts.netloc.rpartition("@")
        place = f"{user}{at}127.0.0.1:{proxy.port}"
        proxy.settings = private(urlunsplit(parts._replace(netloc=place))) | MANY
        yield proxy


@pytest.mark.experiment(19)
@pytest.mark.chaos
async def test_a_network_that_cuts_and_delays_a_broker_is_not_noticed(
    fleet, client, caller_of, wire, experiment, ticks
):
    caller = await a_fleet(fleet, caller_of, wire.settings)
    wire.resets, wire.delays = 0.02, (0.0, 0.1)
    async for _ in ticks(1, 5):
        wire.break_all()
    cuts = wire.cuts
    wire.heal()
    await judge(experiment, client, caller)

    assert cuts > 10, "the network failed too seldom to show anything"


@pytest.mark.experiment(20)
@pytest.mark.chaos
async def test_a_broker_that_falls_silent_is_done_without(
    fleet, client, caller_of, wire, experiment, ticks
):
    caller = await a_fleet(fleet, caller_of, wire.settings)
    async for _ in ticks(0.5, 2):
        before = len(caller.answers)
    wire.freeze()
    async for _ in ticks(1, 12):
        during = len(caller.answers)
    done = await finished(client)
    wire.heal()
    await judge(experiment, client, caller)

    experiment.found(
        "work goes on meanwhile",
        2 * done > during > before,  # most of what was submitted in these seconds
        before=before,
        submitted=during,
        done=done,
    )
