"""A RabbitMQ server that fails its clients, and a load that must not notice."""

import asyncio

import aio_pika
import pytest

from backburner.brokers.amqp import AmqpBroker
from backburner.domain.errors import BrokerUnavailable
from backburner.domain.jobs.job import JobState
from backburner.ports.broker import DeadLetter
from backburner.ports.finding import Status

QUEUE = "default"
TOLD_BY = "BACKBURNER_TRANSPORT"
TIMEOUT_MS, TICK_MS = 1_000, 300
CUT = """
Pids = rabbit_networking:connections(),
rabbit_networking:close_connections(Pids, "a test"),
length(Pids)
"""
NARROW = '<<"narrow">>'
BY_A_TEST = '<<"a test">>'


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


@pytest.fixture
async def rabbit(own_rabbit):
    """The server, without what the last test left on it."""
    await delete_queue(own_rabbit)
    return own_rabbit


async def delete_queue(rabbit):
    """Delete the queue, whoever uses it; the server's own tool takes a second."""
    async with await aio_pika.connect(rabbit.url) as connection:
        channel = await connection.channel()
        await channel.queue_delete(QUEUE)


def memory(share):
    """Say how much memory the server may use before it stops its publishers."""
    return f"vm_memory_monitor:set_vm_memory_high_watermark({share})"


def users(act, *arguments):
    """Say what is to become of a user."""
    values = ", ".join([*arguments, BY_A_TEST])
    return f"rabbit_auth_backend_internal:{act}({values})"


async def count(rabbit):
    """Return how many messages are in the queue."""
    async with await aio_pika.connect(rabbit.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(QUEUE, passive=True)
        return queue.declaration_result.message_count


@pytest.fixture
def told(rabbit):
    """The settings of a process that the broker tells of work."""
    return {TOLD_BY: rabbit.url}


@pytest.fixture
async def caller(fleet, caller_of, told):
    """A caller that submits without pause to a fleet of three processes."""
    server = await fleet.serve("breakable", "--no-worker", **told).ready()
    for _ in range(2):
        await fleet.worker(**told).ready()
    caller = caller_of(server)
    caller.begin(pause=0.04)
    return caller


@pytest.mark.parametrize(
    ("rounds", "seconds"),
    [(5, 2), pytest.param(30, 10, marks=pytest.mark.chaos)],
    ids=["5 and 2 s", "30 and 10 s"],
)
async def test_closed_connections_and_a_stopped_broker_lose_nothing(
    caller, client, rabbit, ticks, rounds, seconds
):
    closed = [int(await rabbit.evaluate(CUT)) async for _ in ticks(0.6, rounds)]
    await rabbit.evaluate("rabbit:stop()")
    async for _ in ticks(seconds, 1):
        before = len(caller.answers)
    async for _ in ticks(0.2, 1):
        assert len(caller.answers) > before, "no submit is answered without the broker"
    await rabbit.evaluate("rabbit:start()")
    async for _ in ticks(1, 1):
        pass
    done = await caller.all_is_well(client)

    assert closed[0] > 0
    assert done > 20 * rounds


async def test_a_deleted_queue_and_a_server_short_of_memory_stop_nobody(
    caller, client, rabbit, ticks
):
    async for _ in ticks(0.5, 3):
        await delete_queue(rabbit)
    await rabbit.evaluate(memory(0.0001))
    findings = [f async for f in AmqpBroker.from_url(rabbit.url).examine()]
    async for _ in ticks(1, 2):
        pass
    await rabbit.evaluate(memory(0.4))
    done = await caller.all_is_well(client)

    assert done > 50
    assert ["rabbitmq alarms"] == [f.name for f in findings if f.status is Status.FAIL]


async def test_what_the_broker_has_outlives_its_restart(
    fleet, client, caller_of, rabbit, told, eventually
):
    caller = caller_of(await fleet.serve("forgetful", "--no-worker", **told).ready())
    await asyncio.gather(*[caller.submit() for _ in range(30)])

    async def has_thirty():
        return 30 == await count(rabbit)

    await eventually(has_thirty)
    await rabbit.evaluate("rabbit:stop()")
    await rabbit.evaluate("rabbit:start()")
    await fleet.worker("forgetful", **told).ready()

    assert 30 == await caller.all_is_well(client)


async def test_what_nobody_told_the_broker_is_found(fleet, client, told):
    jobs = await client.submit("work", *[{}] * 20)
    await fleet.worker("unswept", **told).ready()
    ended = await client.ended(jobs, within=10)

    assert {JobState.SUCCEEDED} == {job.state for job in ended}


async def test_without_looking_it_is_not(fleet, client, told):
    jobs = await client.submit("work", *[{}] * 20)
    await fleet.worker("forgetful", **told).ready()
    left = await client.ended(jobs, within=2)

    assert {JobState.QUEUED} == {job.state for job in left}


@pytest.fixture
async def impatient(rabbit):
    """Have the server end consumers that do not acknowledge for a second."""
    await rabbit.evaluate(limits(TIMEOUT_MS, TICK_MS))
    yield rabbit
    await rabbit.evaluate(limits(1_800_000, 60_000))


def limits(timeout, tick):
    values = {"consumer_timeout": timeout, "channel_tick_interval": tick}
    each = (f"application:set_env(rabbit, {n}, {v})" for n, v in values.items())
    return ", ".join(each)


@pytest.mark.usefixtures("impatient")
async def test_a_job_longer_than_the_consumer_timeout_runs_once(fleet, client, told):
    await fleet.worker("unswept", slots=1, **told).ready()
    [job] = await client.submit("work", {"seconds": 4 * TIMEOUT_MS / 1000})
    [ended] = await client.ended([job])

    assert JobState.SUCCEEDED is ended.state, fleet.logs
    assert 1 == (await client.types(job)).count("job.started")
    assert [] == await client.audit()
    assert "broker" not in fleet.logs, "the server closed a channel or connection"


@pytest.mark.thorough
async def test_who_acknowledges_after_the_work_is_cut_off(impatient):
    broker = AmqpBroker.from_url(impatient.url)
    await broker.open()
    await broker.publish({QUEUE: 1})
    late = await broker.receive(QUEUE, 1)
    async with asyncio.timeout(60):
        again = await broker.receive(QUEUE, 1)
    await broker.acknowledge(QUEUE, late)
    await broker.acknowledge(QUEUE, again)
    await broker.publish({QUEUE: 1})
    next_one = await broker.receive(QUEUE, 1)
    await broker.close()

    assert [1, 1] == [len(late), len(again)], "the message came once"
    assert next_one, "whoever acknowledged too late lost the connection"


@pytest.mark.thorough
async def test_a_user_needs_no_rights_but_to_its_queues(rabbit):
    ours = f'<<"^{QUEUE}(-dlq)?$">>'
    written = rf'<<"^(amq\\.default|{QUEUE}(-dlq)?)$">>'
    await rabbit.evaluate(users("add_user", NARROW, NARROW))
    await rabbit.evaluate(
        users("set_permissions", NARROW, '<<"/">>', ours, written, ours)
    )
    broker = AmqpBroker.from_url(rabbit.url.replace("guest", "narrow"))
    await broker.publish({QUEUE: 2})
    await broker.publish_dead_letters(QUEUE, [DeadLetter("job_1", b"{}")])
    taken = await broker.receive(QUEUE, 1)
    await broker.acknowledge(QUEUE, taken)
    await broker.give_back(QUEUE, await broker.receive(QUEUE, 1))
    findings = [finding async for finding in broker.examine()]
    with pytest.raises(BrokerUnavailable, match="ACCESS_REFUSED"):
        await broker.publish({"another": 1})
    await broker.close()
    await rabbit.evaluate(users("delete_user", NARROW))

    assert 1 == len(taken)
    assert Status.FAIL not in {finding.status for finding in findings}


@pytest.mark.chaos
async def test_the_management_api_tells_of_queues_and_policies(rabbit, unused_tcp_port):
    listen = f'[{{port, {unused_tcp_port}}}, {{ip, "127.0.0.1"}}]'
    told = f"application:set_env(rabbitmq_management, tcp_config, {listen})"
    await rabbit.evaluate(told)
    await rabbit.control("enable", "rabbitmq_management", tool="rabbitmq-plugins")
    short = '{"message-ttl":60000}'
    await rabbit.control("set_policy", "short", f"^{QUEUE}$", short)
    broker = AmqpBroker.from_url(f"{rabbit.url}?management={unused_tcp_port}")
    await broker.publish({QUEUE: 1})
    findings = [finding async for finding in broker.examine()]
    await broker.close()
    await rabbit.control("clear_policy", "short")

    assert "it has a message TTL" in [f.message for f in findings]
