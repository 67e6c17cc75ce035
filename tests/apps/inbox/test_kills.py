"""Real processes that are killed while messages become tasks."""

import asyncio
from collections import Counter

import httpx2
import pytest
import sqlalchemy as sa
import telegram

from backburner.adapters import find_store
from backburner.cli.exits import Exit
from backburner.clock import SystemClock
from backburner.domain.jobs.job import JobState
from backburner.ports.faults import NoFaults
from backburner.testing.broker.acts import pause
from backburner_apps.inbox import tables
from tests.apps.inbox.conftest import HEADER, PATH, SECRET, written
from tests.apps.inbox.fake_bot import TOKEN, FakeBot, serving
from tests.apps.programs import SLOTS, Fleet
from tests.ports import held_port

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
KILLS = 4
MANY = pytest.mark.parametrize(
    "conversations",
    [pytest.param(60, id="few"), pytest.param(200, id="many", marks=pytest.mark.chaos)],
)
"""Sixty are more than the slots of all workers, so that every kill finds some."""
COPIES = 20
LINES = [
    "worker.settling:2",
    "settle.before_commit:2",
    "settle.after_commit:2",
    "worker.settled:2",
]
"""After a message's effect is committed, before and after its job is settled."""


class Client:
    """Posts updates, and looks at what became of them."""

    def __init__(self, store, http):
        self._store, self._http = store, http

    async def deliver(self, update, copies=1):
        headers = {HEADER: SECRET}
        posts = (
            self._http.post(PATH, json=update, headers=headers) for _ in range(copies)
        )
        assert {200} == {answer.status_code for answer in await asyncio.gather(*posts)}

    async def rest(self):
        await self.until(lambda states: not states)

    async def until(self, is_good):
        """Wait until the live states of jobs are as they should be."""
        async with asyncio.timeout(300):
            while not is_good([state for _, state, *_ in await self._store.depths()]):
                await pause()

    async def rows(self, table):
        return await self._store.snapshot(
            lambda connection: connection.execute(sa.select(table)).all()
        )


@pytest.fixture
async def bot():
    fake = FakeBot()
    async with serving(fake.answer) as url:
        fake.url = url
        yield fake


@pytest.fixture
async def fleet(tmp_path, store_url, bot):
    with held_port() as port:
        telegram_of_tests = {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_WEBHOOK_SECRET": SECRET,
            "TELEGRAM_API_BASE_URL": bot.url,
        }
        found = Fleet("inbox", tmp_path, store_url, port, **telegram_of_tests)
        yield found
        found.kill()


@pytest.fixture
async def client(fleet):
    store = find_store(fleet.url, SystemClock(), NoFaults())
    await store.open()
    url = f"http://127.0.0.1:{fleet.port}"
    async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        yield Client(store, http)
    await store.close()


def somebody(n):
    return telegram.User(1000 + n, f"User {n}", is_bot=False, language_code="en")


@BOTH
@MANY
async def test_one_set_of_tasks_each_though_workers_are_killed_throughout(
    fleet, client, bot, record_property, conversations
):
    await fleet.serve()
    updates = [
        written(f"Buy {n} eggs: white, brown", somebody(n))
        for n in range(conversations)
    ]
    workers = [fleet.work(), fleet.work()]
    loading = asyncio.create_task(delivered(client, updates))
    for kill in range(1, KILLS + 1):
        await bot.was_called(kill * conversations // (KILLS + 2))
        workers.pop(0).kill()
        workers.append(fleet.work())
    await loading
    await bot.said(conversations)
    await client.rest()
    tasks, records = await client.rows(tables.tasks), await client.rows(tables.records)
    sent = Counter(message["chat_id"] for message in bot.sent)

    assert {f"Buy {n} eggs" for n in range(conversations)} == {t.title for t in tasks}
    assert conversations == len(tasks) == len(records)
    assert 2 * conversations == len(await client.rows(tables.subtasks))
    assert {"SUCCESS"} == {record.status for record in records}
    assert conversations == len(sent), "everybody has a reply"
    repeats = sum(sent.values()) - conversations
    assert repeats <= KILLS * SLOTS, "only sends in flight are repeated"
    record_property(
        "told",
        f"inbox: {conversations} conversations, {KILLS} workers killed: {len(tasks)} "
        f"tasks, {repeats} of {sum(sent.values())} messages repeated",
    )


async def delivered(client, updates):
    """Deliver each update; every twentieth one many times at once."""
    for place, update in enumerate(updates):
        await client.deliver(update, COPIES if place % 20 == 0 else 1)


async def test_a_worker_that_dies_at_a_line_repeats_no_effect(fleet, client, bot):
    await fleet.serve()
    for n in range(10):
        await client.deliver(written(f"Buy {n} eggs", somebody(n)), 2)
    for line in LINES:
        worker = fleet.work(BACKBURNER_FAULT=line, BACKBURNER_SLOTS="1")
        assert Exit.KILLED == await asyncio.to_thread(worker.wait, 300), line
    fleet.work()
    await client.rest()

    assert 10 == len(await client.rows(tables.tasks))
    assert 10 == len({message["chat_id"] for message in bot.sent})


@BOTH
@pytest.mark.one_store
async def test_a_message_that_is_lost_with_its_workers_is_kept(fleet, client, bot):
    fleet.settings["BACKBURNER_CRASH_LIMIT"] = "2"
    await fleet.serve()
    await client.deliver(written("[[mock: hang]] Buy milk", somebody(1)))
    for _ in range(2):
        worker = fleet.work()
        await client.until(lambda states: JobState.RUNNING in states)
        worker.kill()
        await client.until(lambda states: JobState.RUNNING not in states)
    fleet.work()
    [reply] = await bot.said()
    await client.rest()
    [task], [record] = (
        await client.rows(tables.tasks),
        await client.rows(tables.records),
    )

    assert ("PARSE_FAILED", "[[mock: hang]] Buy milk", "TEXT") == (
        task.status,
        task.original_input,
        task.original_input_type,
    )
    assert "FALLBACK" == record.status
    assert reply.startswith("❌ Something went wrong")
