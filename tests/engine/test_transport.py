"""A message broker tells of work: whatever it does, jobs run once and in order."""

import asyncio
import secrets
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import httpx2
import pytest

from backburner import Backburner, ConfigurationError, Context, Queue, capability
from backburner.adapters import find_broker
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState, Owner, Submitted
from backburner.engine.broker.relay import Relay
from backburner.engine.ticket import Ticket
from backburner.http.auth import as_developer
from backburner.http.server import build
from backburner.settings import Settings
from backburner.stores.sqlite.queries import Queries
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.broker.acts import pause
from backburner.testing.broker.memory import MemoryBroker, Mischief

PATIENCE = 180.0
HERE = "http://127.0.0.1"


@pytest.fixture
async def opened(store_url, server):
    """Open instances over one store and one broker."""
    async with AsyncExitStack() as stack:

        async def open_instance(*capabilities, works=True, **settings):
            given = {"grace_seconds": 0, **settings}
            backburner = Backburner(
                Settings(store=store_url, **given),
                capabilities=capabilities,
                broker=MemoryBroker(server),
            )
            await stack.enter_async_context(backburner)
            if works:
                await backburner.start_worker()
            return backburner

        yield open_instance


@pytest.fixture
def counting():
    """A capability, and the inputs with which its handler was started."""
    started = []

    @capability("count")
    async def count(_ctx: Context, value: int) -> int:
        started.append(value)
        return value

    return count, started


async def ended(tickets):
    async with asyncio.timeout(PATIENCE):
        return [await ticket.result() for ticket in tickets]


async def test_jobs_run_that_a_broker_tells_of(opened, server, counting):
    count, started = counting
    backburner = await opened(count)

    tickets = await backburner.submit_many(count, list(range(100)))

    assert list(range(100)) == await ended(tickets)
    assert sorted(started) == list(range(100))
    assert server.published >= 100


async def test_every_message_three_times_and_out_of_order_runs_each_job_once(
    opened, server, counting, until
):
    count, started = counting
    server.mischief = Mischief(copies=3, is_shuffled=True)
    instances = [await opened(count, slots=7) for _ in range(3)]

    tickets = await instances[0].submit_many(count, list(range(300)))

    assert list(range(300)) == await ended(tickets)
    await until(lambda: server.delivered >= 900)  # each comes three times
    assert list(range(300)) == sorted(started)


async def test_messages_that_come_twice_start_jobs_twice_if_a_claim_takes_what_runs(
    path, server, monkeypatch
):
    """A control: it is the store's compare-and-set on which the test above rests."""
    queries = Queries.load()
    careless = queries.claim_jobs.replace(
        "state = 'queued'", "state IN ('queued', 'running')"
    )
    assert careless != queries.claim_jobs
    changed = replace(queries, claim_jobs=careless)
    monkeypatch.setattr(Queries, "load", lambda: changed)
    server.mischief = Mischief(copies=3)
    started, twice = [], asyncio.Event()

    @capability("hold")
    async def hold(_ctx: Context, value: int) -> None:
        started.append(value)
        if len(started) > len(set(started)):
            twice.set()
        await twice.wait()

    backburner = Backburner(
        Settings(store=f"sqlite:///{path}", grace_seconds=0, slots=6),
        capabilities=[hold],
        broker=MemoryBroker(server),
    )
    async with backburner, asyncio.timeout(PATIENCE):
        await backburner.start_worker()
        await backburner.submit_many(hold, list(range(5)))
        await twice.wait()


async def order_of_starts(url, queue, broker):
    """Submit jobs of three users at several priorities, then work with one slot."""
    started, done = [], asyncio.Event()

    @capability("note", queue=queue)
    async def note(_ctx: Context, value: str) -> None:
        started.append(value)
        if len(started) == 60:
            done.set()

    settings = Settings(store=url, slots=1, grace_seconds=0)
    backburner = Backburner(settings, capabilities=[note], broker=broker)
    async with backburner, asyncio.timeout(PATIENCE):
        for user in ("ann", "bob", "cid"):
            for priority in (0, 5, 9, 2):
                values = [f"{user} {priority} {n}" for n in range(5)]
                owner = Owner("acme", user)
                await backburner.submit_many(
                    note, values, priority=priority, owner=owner
                )
        await backburner.start_worker()
        await done.wait()
    return started


@pytest.fixture(params=["memory", "rabbitmq_url", "redis_url", "sqs_url"])
def any_broker(request, server):
    """A broker of each kind; the one in memory does what the others may."""
    if request.param == "memory":
        server.mischief = Mischief(copies=2, is_shuffled=True)
        return MemoryBroker(server)
    return find_broker(request.getfixturevalue(request.param))


async def test_the_order_is_that_without_a_broker(store_url, any_broker):
    queue = f"order-{secrets.token_hex(4)}"

    plain = await order_of_starts(store_url, "without", None)
    brokered = await order_of_starts(store_url, queue, any_broker)

    assert plain == brokered
    assert ["ann 9 0", "bob 9 0", "cid 9 0", "ann 9 1"] == plain[:4], (
        "or it is no order"
    )


class PartingBroker(MemoryBroker):
    """Knows that it was asked to part."""

    has_parted = False

    async def close(self):
        self.has_parted = True
        await super().close()


async def test_a_broker_that_is_down_at_the_start_fails_the_start(path, server):
    server.stop()
    settings = Settings(
        store=f"sqlite:///{path}", transport="amqp://me:secret@nowhere:5672/vhost"
    )

    broker = PartingBroker(server)

    with pytest.raises(ConfigurationError) as caught:
        async with Backburner(settings, broker=broker):
            pytest.fail("it opened")

    told = str(caught.value)
    assert "BACKBURNER_TRANSPORT: no broker answers at amqp://nowhere:5672" in told
    assert "secret" not in told
    assert broker.has_parted, "half-open connections stay open otherwise"


async def test_a_transport_that_nobody_offers_is_refused(path):
    settings = Settings(store=f"sqlite:///{path}", transport="kafka://here")

    with pytest.raises(ConfigurationError, match="BACKBURNER_TRANSPORT: no broker for"):
        async with Backburner(settings):
            pytest.fail("it opened")


async def test_work_goes_on_while_the_broker_is_down_and_by_it_when_it_is_back(
    opened, server, counting, until
):
    count, _ = counting
    backburner = await opened(count, poll_seconds=0.1)
    server.stop()
    during = await backburner.submit_many(count, list(range(50)))
    results = await ended(during)
    await until(lambda: backburner.engine.is_degraded)

    server.start()
    await until(lambda: not backburner.engine.is_degraded)
    before = server.delivered
    after = await backburner.submit_many(count, list(range(50, 60)))

    assert list(range(50)) == results
    assert list(range(50, 60)) == await ended(after)
    assert server.delivered > before, "messages flow again"


async def test_what_the_broker_forgot_is_told_again(opened, server, counting):
    count, started = counting
    backburner = await opened(count, poll_seconds=0.1, slots=5)

    tickets = await backburner.submit_many(count, list(range(500)))
    server.flush()

    assert list(range(500)) == await ended(tickets)
    assert list(range(500)) == sorted(started)


async def test_messages_that_get_lost_are_missed(opened, server, counting):
    count, _ = counting
    server.mischief = Mischief(loss=0.5)
    backburner = await opened(count, poll_seconds=0.1)

    tickets = [await backburner.submit(count, n) for n in range(50)]

    assert list(range(50)) == await ended(tickets)


class EndsBeforePublishing:
    """Ends a relay as the end of its process would."""

    def __init__(self):
        self.hits = 0

    def hit(self, name):
        if name == "relay.publish":
            self.hits += 1
            raise asyncio.CancelledError


async def submitted_by_one_who_dies(backburner, url, server, count, until):
    """Commit a job in a process that ends before it publishes; return a ticket."""
    faults = EndsBeforePublishing()
    dying = Backburner(
        Settings(store=url, poll_seconds=0.1),
        capabilities=[count],
        broker=MemoryBroker(server),
        faults=faults,
    )
    with suppress(asyncio.CancelledError):
        async with dying:
            ticket = await dying.submit(count, 7)
            await until(lambda: faults.hits)
    return Ticket(Submitted(ticket.id, JobState.QUEUED), backburner.engine)


async def test_what_one_committed_and_never_told_another_process_tells(
    opened, store_url, server, counting, until
):
    count, _ = counting
    backburner = await opened(count, poll_seconds=0.1)

    ticket = await submitted_by_one_who_dies(
        backburner, store_url, server, count, until
    )

    assert [7] == await ended([ticket])


async def test_what_nobody_told_waits_if_nobody_compares(
    opened, store_url, server, counting, until, monkeypatch
):
    """A control: it is the comparison on which the test above rests."""

    async def never(_relay):
        return None

    monkeypatch.setattr(Relay, "_look_in_time", never)
    count, started = counting

    @capability("other", queue="other")
    async def other(_ctx: Context, value: int) -> int:
        return value

    backburner = await opened(count, other, poll_seconds=5)

    ticket = await submitted_by_one_who_dies(
        backburner, store_url, server, count, until
    )
    await ended([await backburner.submit(other, 8)])

    assert [] == started
    assert JobState.QUEUED is (await ticket.job()).state


async def test_flows_go_on_by_the_broker(opened, counting):
    count, started = counting
    backburner = await opened(count, poll_seconds=30)

    flow = await backburner.submit_flow(count >> count >> count, 1)
    async with asyncio.timeout(PATIENCE):
        await flow.wait(timeout=PATIENCE)

    assert [1, 1, 1] == started


async def test_a_paused_queue_is_not_received_from(opened, server, counting, until):
    count, started = counting
    backburner = await opened(count, poll_seconds=0.1)
    await backburner.engine.store.pause("default", paused=True)
    await until(lambda: backburner._worker._claim_planner.paused)

    tickets = await backburner.submit_many(count, [1, 2])
    await until(lambda: server.depth("default") == 2)
    waiting = (server.depth("default"), [*started])
    await backburner.engine.store.pause("default", paused=False)

    assert [1, 2] == await ended(tickets)
    assert (2, []) == waiting


@pytest.mark.parametrize(
    "limit", [{"concurrency": 1}, {"per_worker": 1}, {"concurrency": 3}], ids=str
)
async def test_a_limited_queue_is_served_to_its_end(path, server, limit):
    most, running = 0, 0

    @capability("count")
    async def count(_ctx: Context, value: int) -> int:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await pause()
        running -= 1
        return value

    backburner = Backburner(
        Settings(store=f"sqlite:///{path}", poll_seconds=10, grace_seconds=0),
        capabilities=[count],
        queues=[Queue("default", **limit)],
        broker=MemoryBroker(server),
    )
    async with backburner:
        await backburner.start_worker()
        tickets = await backburner.submit_many(count, list(range(20)))

        assert list(range(20)) == await ended(tickets)
    assert next(iter(limit.values())) == most


async def test_a_claim_that_fails_gives_its_messages_back(
    path, server, counting, monkeypatch
):
    count, started = counting
    failed = asyncio.Event()
    claim = SqliteStore.claim

    async def refuse(store, worker, token, claim_requests, *, now):
        if not failed.is_set():
            failed.set()
            raise StoreUnavailable("out of order on purpose")
        return await claim(store, worker, token, claim_requests, now=now)

    backburner = Backburner(
        Settings(store=f"sqlite:///{path}", poll_seconds=0.3, grace_seconds=0),
        capabilities=[count],
        broker=MemoryBroker(server),
    )
    async with backburner:
        await backburner.start_worker()
        monkeypatch.setattr(SqliteStore, "claim", refuse)
        ticket = await backburner.submit(count, 1)

        assert [1] == await ended([ticket])
    assert failed.is_set()
    assert [1] == started
    assert 2 <= server.delivered, "the message came again"


async def test_messages_are_done_with_once_their_jobs_are_claimed(
    opened, server, counting, until
):
    count, _ = counting
    backburner = await opened(count, poll_seconds=30)

    await ended(await backburner.submit_many(count, list(range(20))))

    await until(lambda: server.depth("default") == 0)


async def test_a_worker_that_stops_lets_others_have_its_messages(
    opened, server, counting, until
):
    count, _ = counting

    @capability("block")
    async def block(_ctx: Context, _value: int) -> None:
        await asyncio.Event().wait()

    backburner = await opened(block, count, slots=3, poll_seconds=30)
    await backburner.submit_many(block, list(range(9)))
    await until(lambda: backburner._worker.running == 3)
    await backburner.stop_worker(grace=0)

    assert 0 == server.handed("default"), "what it had is others' now"
    await until(lambda: server.depth("default") >= 9)  # too many find nothing


async def test_messages_for_which_there_is_no_room_go_to_others(
    opened, counting, until
):
    count, _ = counting
    released = asyncio.Event()

    @capability("hold", queue="hold")
    async def hold(_ctx: Context, value: int) -> int:
        await released.wait()
        return value

    full = await opened(hold, count, slots=1, poll_seconds=30)
    [holding] = await full.submit_many(hold, [1])
    await until(lambda: full._worker.running == 1)
    other = await opened(count, slots=1, poll_seconds=30)

    tickets = await other.submit_many(count, list(range(5)))

    assert list(range(5)) == await ended(tickets), "though one's only slot is taken"
    released.set()
    assert [1] == await ended([holding])


async def test_readiness_tells_that_work_goes_on_without_the_broker(
    path, server, until
):
    settings = Settings(store=f"sqlite:///{path}", poll_seconds=0.1)
    async with Backburner(settings, broker=MemoryBroker(server)) as backburner:
        app = build(
            backburner.engine, settings, keys=backburner.keys, authenticate=as_developer
        )
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url=HERE) as http:
            well = await http.get("/readyz")
            server.stop()
            await until(lambda: backburner.engine.is_degraded)
            down = await http.get("/readyz")
            metrics = await http.get("/metrics")
            server.start()
            await until(lambda: not backburner.engine.is_degraded)
            again = await http.get("/readyz")

    told = [(a.status_code, a.json()["status"]) for a in (well, down, again)]
    assert [(200, "ok"), (200, "degraded"), (200, "ok")] == told
    assert 'backburner_broker_up{transport="database"} 0.0' in metrics.text
