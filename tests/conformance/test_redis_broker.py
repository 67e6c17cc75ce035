"""Redis keeps the promises of a broker; here are also those that only it makes."""

import asyncio
import secrets
import ssl
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import trustme
from redis.asyncio import Redis

from backburner.brokers.redis import GROUP, RedisBroker
from backburner.brokers.redis_examination import judged
from backburner.domain.errors import BrokerUnavailable, ConfigurationError
from backburner.ports.broker import DEAD, DeadLetter
from backburner.ports.finding import Status
from backburner.testing.broker import BrokerConformance, Proxied
from backburner.testing.broker.acts import comes_true, finish, nothing_comes, take

WEEK = timedelta(days=7)
MINUTE = timedelta(minutes=1)


class RedisServer(Proxied):
    """A Redis server, seen from outside."""

    def __init__(self, url):
        parts = urlsplit(url)
        super().__init__(parts.hostname, parts.port)
        self._path = parts.path
        self.redis = Redis.from_url(url)

    def broker(self):
        return RedisBroker.from_url(f"redis://127.0.0.1:{self.port}{self._path}")

    async def put(self, queue, body, *, name=""):
        await self.redis.xadd(queue, {"body": body} | ({"id": name} if name else {}))

    async def dead_letters(self, queue):
        entries = await self.redis.xrange(queue + DEAD)
        return [DeadLetter(e[b"id"].decode(), e[b"body"]) for _, e in entries]

    async def kept_for(self, queue):
        """Put old letters there: with the next one, those over a week old go."""
        seconds, _ = await self.redis.time()
        ages = [WEEK + MINUTE, WEEK - MINUTE]
        ids = [round((seconds - age.total_seconds()) * 1000) for age in ages]
        await self.redis.delete(queue + DEAD)
        for number in ids:
            await self.redis.xadd(queue + DEAD, {"body": "{}"}, id=number)
        broker = self.broker()
        await broker.publish_dead_letters(queue, [DeadLetter("job_9", b"{}")])
        await broker.close()
        first, *_ = await self.redis.xrange(queue + DEAD)
        return WEEK if first[0] == f"{ids[1]}-0".encode() else None

    async def kill(self, broker):
        for reading in broker._readings.values():
            if reading._request:
                reading._request.cancel()
        broker._readings.clear()
        await broker._redis.aclose()
        await broker._readers.aclose()


class TestRedisBroker(BrokerConformance):
    @pytest.fixture
    async def server(self, redis_url, monkeypatch):
        monkeypatch.setattr("backburner.brokers.redis.ANSWER_SECONDS", 2.0)
        monkeypatch.setattr("backburner.brokers.redis.LOST_MS", 3_000)
        monkeypatch.setattr("backburner.brokers.redis.RECLAIM_SECONDS", 0.5)
        server = RedisServer(redis_url)
        await server.start()
        yield server
        await server.stop()
        await server.redis.aclose()

    @pytest.fixture
    async def a_queue(self, redis_url):
        names = []

        def name_queue(word):
            names.append(f"{word}-{secrets.token_hex(4)}")
            return names[-1]

        yield name_queue
        async with Redis.from_url(redis_url) as redis:
            for name in names:
                await redis.delete(name, name + DEAD)

    async def test_what_waits_is_the_stream_and_nothing_else(
        self, broker, server, queue
    ):
        await broker.publish({queue: 3})
        await finish(broker, queue, 3)

        assert 0 == await server.redis.xlen(queue)

    async def test_a_stream_that_was_flushed_is_made_again(self, broker, server, queue):
        await broker.publish({queue: 2})
        await take(broker, queue, 2)
        waiting = asyncio.create_task(broker.receive(queue, 5))
        await server.redis.delete(queue)
        await broker.publish({queue: 1})

        assert 1 == len(await waiting)
        await broker.acknowledge(queue, waiting.result())
        assert await nothing_comes(broker, queue)

    async def test_who_leaves_leaves_no_consumer_behind(self, connect, server, queue):
        broker = await connect()
        await broker.publish({queue: 1})
        await take(broker, queue, 1)
        before = await server.redis.xinfo_consumers(queue, GROUP)
        await broker.close()

        assert 1 == len(before)
        assert [] == await server.redis.xinfo_consumers(queue, GROUP)
        assert 1 == await server.redis.xlen(queue), "what it held was forgotten"

    async def test_a_consumer_that_holds_something_is_never_forgotten(
        self, connect, server, queue, monkeypatch
    ):
        monkeypatch.setattr("backburner.brokers.redis.GONE_MS", -1)
        holder, tidy = await connect(), await connect()
        await holder.publish({queue: 2})
        await take(holder, queue, 1)
        await server.redis.xgroup_createconsumer(queue, GROUP, "idle")
        await take(tidy, queue, 1)
        consumers = await server.redis.xinfo_consumers(queue, GROUP)

        names = {consumer["name"].decode() for consumer in consumers}
        assert {holder._consumer, tidy._consumer} == names

    async def test_an_entry_without_a_body_arrives_with_all_its_fields(
        self, broker, server, queue
    ):
        number = await server.redis.xadd(queue, {"capability": "echo", "input": "{}"})
        [message] = await finish(broker, queue, 1)

        assert b'{"capability": "echo", "input": "{}"}' == message.body
        assert number.decode() == message.id, "an entry's number names it"

    async def test_an_entry_without_a_name_keeps_its_number_when_it_is_given_back(
        self, broker, server, queue
    ):
        await server.redis.xadd(queue, {"body": "{}"})
        [first] = await take(broker, queue, 1)
        await broker.give_back(queue, [first])
        [again] = await finish(broker, queue, 1)

        assert first.id == again.id

    async def test_a_key_that_holds_something_else_is_no_queue(
        self, broker, server, queue
    ):
        await server.redis.set(queue, "a string")

        with pytest.raises(BrokerUnavailable, match="WRONGTYPE") as told:
            await broker.publish({queue: 1})
        assert told.value.__suppress_context__, "the driver's text quotes the message"
        with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
            await broker.receive(queue, 1)

    async def test_more_queues_may_be_received_from_than_the_driver_allows(
        self, broker, a_queue
    ):
        queues = [a_queue(f"q{n}") for n in range(120)]
        waiting = [asyncio.create_task(broker.receive(queue, 1)) for queue in queues]
        await broker.publish(dict.fromkeys(queues, 1))
        taken = await asyncio.gather(*waiting)

        assert [1] * 120 == [len(messages) for messages in taken]

    async def test_letters_of_more_than_a_week_go_without_another(
        self, connect, server, queue, monkeypatch
    ):
        monkeypatch.setattr("backburner.brokers.redis.TIDY_SECONDS", 0)
        monkeypatch.setattr("backburner.brokers.redis.RECLAIM_SECONDS", 0)
        await server.redis.xadd(queue + DEAD, {"body": "{}"}, id="1-0")
        broker = await connect()
        await broker.publish({queue: 2})
        await finish(broker, queue, 2)

        async def is_gone():
            return 0 == await server.redis.xlen(queue + DEAD)

        assert await comes_true(is_gone)


async def test_a_server_is_spoken_to_by_tls_and_must_prove_itself(redis_url, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = RedisServer(redis_url)
    await server.start(ssl=context)
    url = f"rediss://127.0.0.1:{server.port}/0"
    known = RedisBroker.from_url(f"{url}?ssl_ca_certs={tmp_path / 'ca.pem'}")
    unknown = RedisBroker.from_url(url)
    await known.open()
    with pytest.raises(BrokerUnavailable):
        await unknown.open()
    await known.close()
    await unknown.close()
    await server.stop()
    await server.redis.aclose()


SOUND = {
    "redis_version": "7.0.15",
    "role": "master",
    "maxmemory": 0,
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "appendfsync": "everysec",
}


def test_a_server_in_good_order_passes():
    findings = [*judged(SOUND), *judged(SOUND | {"maxmemory": 10**9})]

    assert {Status.PASS} == {finding.status for finding in findings}


@pytest.mark.parametrize(
    ("told", "name", "status"),
    [
        ({"redis_version": "6.0.16"}, "redis", Status.FAIL),
        ({"cluster_enabled": 1}, "redis", Status.FAIL),
        ({"role": "slave"}, "redis role", Status.FAIL),
        (
            {"maxmemory": 10**9, "maxmemory_policy": "allkeys-lru"},
            *("redis memory", Status.FAIL),
        ),
        ({"aof_enabled": 0}, "redis persistence", Status.WARN),
        ({"appendfsync": "no"}, "redis persistence", Status.WARN),
        ({"aof_last_write_status": "err"}, "redis persistence", Status.FAIL),
    ],
)
def test_what_loses_messages_is_found_and_can_be_mended(told, name, status):
    [found] = [f for f in judged(SOUND | told) if f.status is not Status.PASS]

    assert (name, status) == (found.name, found.status)
    assert found.fix


async def test_one_that_does_not_answer_is_found():
    broker = RedisBroker.from_url("redis://127.0.0.1:9/0")
    [found] = [finding async for finding in broker.examine()]
    await broker.close()

    assert Status.FAIL is found.status


@pytest.mark.parametrize(
    "url", ["redis://host:port/0", "redis://localhost?no_such_option=1"]
)
def test_a_url_that_says_nothing_is_refused_with_its_setting(url):
    with pytest.raises(ConfigurationError, match="BACKBURNER_TRANSPORT"):
        RedisBroker.from_url(url)
