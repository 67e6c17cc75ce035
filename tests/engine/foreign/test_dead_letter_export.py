"""Dead letters seen from the broker, and moved back."""

import asyncio
import json
from datetime import timedelta

from backburner import (
    Backburner,
    Budget,
    Context,
    PermanentError,
    RetryPolicy,
    capability,
)
from backburner.domain.errors import BrokerUnavailable
from backburner.domain.jobs.job import JobState
from backburner.engine.broker import dead_letter_export
from backburner.engine.broker.dead_letter_export import PAGE, SPAN, DeadLetterExporter
from backburner.settings import Settings
from backburner.testing.broker.memory import MemoryBroker
from tests.engine.foreign.acts import (
    ANY_STORE,
    PATIENCE,
    a_request,
    emptied,
    ended,
    fail,
    jobs_of,
    letters,
    until,
)


class Crash(Exception):
    pass


class Crashes:
    """Fails between the broker's having a letter and the store's knowing of it."""

    def __init__(self, most=1_000_000):
        self._most = most
        self._count = 0

    def hit(self, name):
        if name == "dead_letter_export.written" and self._count < self._most:
            self._count += 1
            raise Crash

    async def have_come(self):
        return self._count > 0


async def test_a_job_that_fails_is_seen_among_the_dead_letters(opened, server, fickle):
    backburner = await opened(fickle.capability())
    job = await fail(backburner, "it")
    [letter] = await letters(server, "fickle")

    assert [f"{job.id}.0"] == [one.id for one in server.dead["fickle"]]
    assert ("dead-letter", job.id, 0, "fickle", "fickle", "it", 1) == (
        letter["backburner"],
        letter["job"],
        letter["generation"],
        letter["queue"],
        letter["capability"],
        letter["input"],
        letter["attempts"],
    )
    assert {"code": "BROKEN", "message": "it is broken"} == letter["error"]


async def test_a_dead_letter_that_is_moved_back_is_a_retry(opened, server, fickle):
    backburner = await opened(fickle.capability())
    job = await fail(backburner, "it")
    await letters(server, "fickle")
    [letter] = server.dead["fickle"]
    fickle.is_mended = True
    server.put("fickle", letter.body, letter.body)
    await emptied(server, "fickle")
    [again] = await ended(backburner)

    assert (job.id, JobState.SUCCEEDED, 1) == (again.id, again.state, again.generation)
    assert 1 == len(server.dead["fickle"]), "the second letter is stale: it is dropped"


async def test_a_letter_whose_retry_has_no_budget_goes_back(opened, server, fickle):
    backburner = await opened(fickle.capability(), budgets=[Budget("user", tokens=100)])
    ticket = await backburner.submit("fickle", "it", tokens=70)
    await ticket.wait(PATIENCE)
    await letters(server, "fickle")
    [letter] = server.dead["fickle"]
    held = await backburner.budgets.reserve(70)
    server.put("fickle", letter.body, name=letter.id)
    await letters(server, "fickle", 2)
    await emptied(server, "fickle")
    refused = await ticket.job()
    await backburner.budgets.release(held.id)
    fickle.is_mended = True
    server.put("fickle", letter.body, name=letter.id)
    await emptied(server, "fickle")
    [job] = await ended(backburner)

    assert (JobState.FAILED, 0) == (refused.state, refused.generation)
    assert [letter, letter] == server.dead["fickle"], "it is as it was"
    assert (JobState.SUCCEEDED, 1) == (job.state, job.generation)


async def test_a_letter_of_a_job_that_failed_again_is_stale(opened, server, fickle):
    backburner = await opened(fickle.capability())
    job = await fail(backburner, "it")
    [_] = await letters(server, "fickle")
    await backburner.retry(job.id)
    first, second = await letters(server, "fickle", 2)
    server.put("fickle", json.dumps(first).encode())
    await emptied(server, "fickle")
    [now] = await ended(backburner)

    assert (0, 1) == (first["generation"], second["generation"])
    assert 1 == now.generation, "it was not retried by its old letter"


@ANY_STORE
async def test_a_letter_of_a_job_that_is_not_here_is_forgotten(opened, server):
    backburner = await opened()
    letter = {"backburner": "dead-letter", "job": "job_x", "generation": 0}
    server.put("greetings", json.dumps(letter).encode())
    await emptied(server, "greetings")

    assert [] == [*await jobs_of(backburner), *server.dead["greetings"]]


async def test_what_fails_while_the_broker_is_down_is_seen_when_it_is_back(
    opened, server, fickle
):
    backburner = await opened(fickle.capability())
    server.stop()
    failed = [await fail(backburner, str(n)) for n in range(3)]
    hidden = len(server.dead["fickle"])
    server.start()
    seen = await letters(server, "fickle", 3)

    assert 0 == hidden
    assert [job.id for job in failed] == [letter["job"] for letter in seen]


async def test_a_letter_whose_writer_died_is_written_again(
    opened, server, fickle, monkeypatch
):
    monkeypatch.setattr(dead_letter_export, "SPAN", timedelta())
    faults = Crashes()
    backburner = await opened(fickle.capability(), faults=faults)
    job = await fail(backburner, "it")
    await letters(server, "fickle")
    await until(faults.have_come)
    await opened(works=False)
    await letters(server, "fickle", 2)

    assert 2 * [f"{job.id}.0"] == [one.id for one in server.dead["fickle"]]


@ANY_STORE
async def test_a_queue_that_takes_no_letters_does_not_double_those_of_others(
    opened, server, fickle, monkeypatch
):
    taken = MemoryBroker.publish_dead_letters
    refused = []

    async def publish_dead_letters(self, queue, letters):
        if queue == "wilful" and not server.is_down and len(refused) < 3:
            refused.append(queue)
            raise BrokerUnavailable("no such queue")
        await taken(self, queue, letters)

    monkeypatch.setattr(MemoryBroker, "publish_dead_letters", publish_dead_letters)
    monkeypatch.setattr(dead_letter_export, "LOOK_SECONDS", 0.05)

    @capability("wilful", queue="wilful", max_attempts=1)
    async def wilful(_ctx: Context, value: str) -> str:
        raise PermanentError(value)

    backburner = await opened(fickle.capability(), wilful)
    server.stop()
    for name in ("fickle", "wilful"):
        await (await backburner.submit(name, "it")).wait(PATIENCE)
    server.start()
    await letters(server, "wilful")

    assert (3, 1) == (len(refused), len(server.dead["fickle"]))
    assert not backburner.engine.is_degraded


@ANY_STORE
async def test_with_the_mark_moved_first_it_is_lost(
    opened, server, fickle, monkeypatch
):
    async def hasty(self):
        found = await self._store.unexported_dead_letters(
            self._exporter, span=SPAN, limit=PAGE
        )
        if found is not None:
            await self._store.mark_dead_letters_exported(
                self._exporter, upto=found.upto
            )
            self._faults.hit("dead_letter_export.written")
            await self._write(found.jobs)

    monkeypatch.setattr(DeadLetterExporter, "export", hasty)
    faults = Crashes(1)
    backburner = await opened(fickle.capability(), faults=faults)
    await fail(backburner, "lost")
    await until(faults.have_come)
    kept = await fail(backburner, "kept")
    await letters(server, "fickle")

    assert [f"{kept.id}.0"] == [one.id for one in server.dead["fickle"]]


async def test_of_several_instances_one_writes_each_letter(opened, server, fickle):
    instances = [await opened(fickle.capability(), works=n == 0) for n in range(4)]
    failed = [await fail(instances[0], str(n)) for n in range(5)]
    seen = await letters(server, "fickle", 5)
    backburner = await opened(fickle.capability(), works=False)
    found = await backburner.engine.store.unexported_dead_letters(
        "x", span=timedelta(), limit=9
    )

    assert [job.id for job in failed] == [letter["job"] for letter in seen]
    assert found is None


async def test_a_broker_begins_with_what_fails_after_it_came(
    store_url, opened, server, fickle
):
    plain = Backburner(
        Settings(store=store_url, transport="database", grace_seconds=0),
        capabilities=[fickle.capability()],
    )
    async with plain:
        await plain.start_worker()
        await fail(plain, "old")
    backburner = await opened(fickle.capability())
    async with plain:
        await plain.start_worker()
        unseen = await fail(plain, "unseen")
        seen = await letters(server, "fickle")

    assert [unseen.id] == [letter["job"] for letter in seen]
    assert 2 == len(await jobs_of(backburner))


async def gone(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
    writer.close()


@ANY_STORE
async def test_a_webhook_that_could_not_be_delivered_is_seen_too(opened, server):
    async with await asyncio.start_server(gone, "127.0.0.1", 0) as receiver:
        port = receiver.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/"
        backburner = await opened(
            deliveries=RetryPolicy(base=timedelta(), jitter=timedelta()),
            webhook_allow=("127.0.0.1/32",),
            webhook_ports=(port,),
        )
        server.put("greetings", a_request(callbackUrl=url))
        [letter] = await letters(server, "backburner.deliveries")

    assert "webhook.deliver" == letter["capability"]
    assert {"url": url} == letter["input"]["callback"]
    assert 2 == len(await ended(backburner, 2))
