"""A busy instance moves to PostgreSQL, works there, and back."""

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from backburner import (
    App,
    Backburner,
    Budget,
    Context,
    Flow,
    FlowTicket,
    JobState,
    Lane,
    PermanentError,
    Queue,
    Schedule,
    Ticket,
    TransientError,
    capability,
)
from backburner.domain.jobs.job import Submitted
from backburner.domain.jobs.retry import RetryPolicy
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.events import Topic
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.maintenance import JobFilter
from backburner.ports.store.workers import WorkerInfo
from backburner.settings import Settings
from backburner.testing.auditor import Ledger, audit
from tests import warm
from tests.egress.receiver import Receiver, answers
from tests.store.moving import a_store, read

PATIENCE = 180.0
LOST = "lost"
LARGE = "x" * 70_000
ADMIN = Actor("tests", LOCAL.tenant)
SUMS = [
    sa.text(f"SELECT {what} FROM {table}")  # noqa: S608 - our own
    for what, table in (
        ("state, count(*), sum(rank), sum(events)", "jobs GROUP BY state"),
        ("state, count(*), sum(active)", "flows GROUP BY state"),
        ("state, count(*), sum(told)", "batches GROUP BY state"),
        ("count(*), sum(held), sum(settled), sum(overdraft)", "accounts"),
        ("kind, count(*), sum(amount)", "entries GROUP BY kind"),
        ("count(*), sum(amount)", "holds WHERE is_open"),
        ("count(*), sum(input_tokens), sum(output_tokens)", "usages"),
        ("count(*), sum(seq), max(seq)", "events"),
        ("count(*), sum(finish), sum(taken)", "shares"),
        ("count(*), sum(front)", "fronts"),
        ("count(*)", "edges"),
        ("count(*)", "endpoints"),
        ("count(*)", "api_keys"),
        ("count(*)", "audit"),
        ("count(*)", "schedules"),
        ("count(*)", "queues WHERE paused"),
        ("count(*)", "lanes"),
    )
]


@dataclass
class Course:
    """Where Backburner is just now, and what ran in it."""

    place: str = "here"
    ran: list[tuple[str, str]] = field(default_factory=list)
    waits: asyncio.Event = field(default_factory=asyncio.Event)


@pytest.fixture
def course():
    return Course()


def waiter(course):
    @capability("wait", tokens=50, max_attempts=1)
    async def wait(ctx: Context, _value: str) -> list[str]:
        first = await ctx.step("first", lambda: course.place)
        told = await ctx.wait("go", timeout=timedelta(days=1), into=str)
        course.ran.append((ctx.job.id, course.place))
        return [first, told, await ctx.wait("early", into=str)]

    return wait


@pytest.fixture
def app(course):
    @capability("ask", tokens=100, max_attempts=1)
    async def ask(ctx: Context, value: str) -> str:
        course.ran.append((ctx.job.id, course.place))
        async with ctx.lane("acme", "model") as call:
            call.hear(200, {})
        ctx.used("model", input_tokens=60, output_tokens=20)
        return value

    @capability("hold", tokens=10, max_attempts=1)
    async def hold(_ctx: Context, value: str) -> str:
        if value != course.place:
            course.waits.set()
            await asyncio.Event().wait()
        return value

    @capability("break", max_attempts=1)
    async def broken(_ctx: Context, value: str) -> None:
        if value != course.place:
            raise PermanentError("not here")

    @capability("flaky", retry=RetryPolicy.listed(timedelta(hours=1)))
    async def flaky(_ctx: Context, _value: str) -> None:
        raise TransientError("later")

    @capability("lost", queue=LOST, tokens=5, max_attempts=1)
    async def lost(ctx: Context, value: str) -> str:
        course.ran.append((ctx.job.id, course.place))
        return value

    return App(
        "moving",
        capabilities=[ask, hold, broken, flaky, lost, waiter(course)],
        queues=[Queue("default", concurrency=50, weights={"ann": 3})],
        schedules=[Schedule("nightly", "0 3 * * *", ask, "by night")],
        budgets=[Budget("user", tokens=100_000)],
        lanes=[Lane("acme/model", requests=6_000, at_once=10)],
    )


@pytest.fixture
async def receiver():
    async with Receiver(answers(204)) as receiver:
        yield receiver


@pytest.fixture
def backburner(app, receiver, tmp_path):
    """Build an instance over a store; all of them share their large contents."""

    def build(url):
        settings = Settings(
            store=url,
            blobs=(tmp_path / "blobs").as_uri(),
            grace_seconds=0,
            poll_seconds=0.2,
            key_pepper="p" * 32,
            webhook_secret="s" * 32,
            webhook_allow=("127.0.0.0/8",),
            webhook_http=True,
            webhook_ports=(receiver.port,),
        )
        return Backburner(settings, apps=[app])

    return build


def move(source, target):
    ended = warm.run(
        [
            *(sys.executable, "-m", "backburner", "move"),
            *("--from", source, "--to", target),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 0 == ended.returncode, ended.stderr


async def sums(url):
    """Add up what is in a store, past the engine."""
    store = a_store(url)

    def add_up(connection):
        found = [sorted(map(_plain, connection.execute(sql))) for sql in SUMS]
        return dict(zip(map(str, SUMS), found, strict=True))

    added = await read(store, add_up)
    await store.close()
    return added


def _plain(row):
    return tuple(v if isinstance(v, str) else f"{int(v or 0)}" for v in row)


async def read_on(bb, ledger):
    """Go on reading the stream of all events where the last reader was."""
    after = ledger.stream[-1] if ledger.stream else 0
    while events := (
        await bb.engine.store.stream(LOCAL, after=after, limit=500, topic=Topic())
    ).events:
        ledger.stream += [event.seq for event in events]
        after = ledger.stream[-1]


async def begin(bb, receiver, ledger):
    """Put everything into an instance and leave it in the middle of it."""
    await bb.start_worker()
    callback = receiver.url()
    done = [await bb.submit("ask", f"{n}", callback=callback) for n in range(5)]
    done += [await bb.submit("break", "there") for _ in range(3)]
    keyed = await bb.submit("ask", "keyed", idempotency_key="once")
    flow = Flow()
    step = flow.add("ask", "1", name="first")
    step = flow.add("hold", "there", name="second", after=[step])
    step = flow.add("hold", "back", name="third", after=[step])
    flow.add("ask", "4", name="fourth", after=[step])
    flowing = await bb.submit_flow(flow, callback=callback)
    batch = await bb.open_batch(
        [("ask", "5"), ("hold", "there"), ("hold", "back"), ("break", "here")],
        completion={"capability": "ask", "input": "all"},
        callback=callback,
    )
    flaky = await bb.submit("flaky", "")
    for ticket in (*done, keyed):
        await ended(bb, ticket.id)
    async for event in flaky.events():
        if event.type == "job.retrying":
            break
    ledger.acknowledged += [t.id for t in (*done, keyed, flowing, batch, flaky)]
    ledger.acknowledge(keyed.id, "once", "ask")
    return flowing, batch, flaky


async def lose(bb, ledger):
    """Have a worker take two of three jobs, and die."""
    store = bb.engine.store
    tickets = [await bb.submit("lost", f"{n}") for n in range(3)]
    await store.enlist(WorkerInfo("w_dead", "gone", 1, 9, (LOST,), started_at=0))
    now = bb.engine.now()
    claims = await store.claim("w_dead", "t" * 16, [ClaimRequest(LOST, 2)], now=now)
    await store.dismiss("w_dead")
    ledger.acknowledged += [ticket.id for ticket in tickets]

    assert 2 == len(claims)
    return [ticket.id for ticket in tickets]


@dataclass
class Left:
    """What one deployment leaves to the next."""

    flow: str
    batch: str
    flaky: str
    lost: list[str]
    later: str
    key: str
    waiting: str


async def here(bb, receiver, ledger):
    """Put everything in, and leave it in the middle of it."""
    _, key = await bb.keys.create(NewKey("moved"), ADMIN)
    flowing, batch, flaky = await begin(bb, receiver, ledger)
    await all_over(bb, capability="ask")
    waiting = await bb.submit("wait", "")
    ledger.acknowledged.append(waiting.id)
    async for event in waiting.events():
        if event.type == "job.waiting":
            break
    await bb.signal(waiting.id, "early", "before the move")
    await bb.stop_worker()
    lost = await lose(bb, ledger)
    await bb.engine.store.pause("asleep", paused=True)
    await bb.budgets.reserve(tokens=77, id="kept", lasts=timedelta(hours=9))
    later = await bb.submit("ask", LARGE, delay=timedelta(hours=1))
    return Left(flowing.id, batch.id, flaky.id, lost, later.id, key, waiting=waiting.id)


async def there(bb, left, ledger):
    """Go on with it: what was lost, what is dead, one step, and something new."""
    again = await bb.submit("ask", "keyed", idempotency_key="once")
    dead = await bb.engine.jobs(JobFilter(state=JobState.FAILED))
    await bb.start_worker()
    await bb.signal(left.waiting, "go", "after the move")
    waited = await ended(bb, left.waiting)
    assert '["here","after the move","before the move"]' == waited.output
    rescued = [await ended(bb, job) for job in left.lost]
    for job in dead:
        await bb.retry(job.id)
    ledger.acknowledged += [(await bb.submit("ask", "new")).id for _ in range(5)]
    steps = await FlowTicket(Submitted(left.flow, ""), bb.engine).steps()
    second = await ended(bb, steps["second"].id)
    await all_over(bb, capability="ask")
    await bb.stop_worker()

    assert await bb.keys.check(left.key), "a key works in the new store"
    assert again.id in ledger.acknowledged, "an idempotency key is known there"
    assert [JobState.SUCCEEDED] * 4 == [job.state for job in (*rescued, second)]


async def back(bb, left):
    """Do all that is left to do."""
    await bb.start_worker()
    [later] = await bb.engine.store.find([left.later])
    content = (await bb.engine.payloads.whole(later)).input
    await bb.cancel(left.later)
    await bb.cancel(left.flaky)
    await bb.budgets.settle("kept", 70)
    batch = await bb.engine.batches.wait(left.batch, timeout=PATIENCE)
    await all_over(bb)

    assert batch.finished_at is not None
    assert LARGE in content, "a large content is found"


async def test_everything_moves_there_and_back_under_one_ledger(
    backburner, course, receiver, path, tmp_path, migrated_url
):
    first, last = f"sqlite:///{path}", f"sqlite:///{tmp_path}/back/jobs.db"
    (tmp_path / "back").mkdir()
    ledger = Ledger()
    async with asyncio.timeout(60):
        async with backburner(first) as bb:
            left = await here(bb, receiver, ledger)
            await read_on(bb, ledger)
        sent = await sums(first)
        await asyncio.to_thread(move, first, migrated_url)
        came = await sums(migrated_url)
        course.place = "there"
        async with backburner(migrated_url) as bb:
            await there(bb, left, ledger)
            await read_on(bb, ledger)
        sent_back = await sums(migrated_url)
        await asyncio.to_thread(move, migrated_url, last)
        came_back = await sums(last)
        course.place = "back"
        async with backburner(last) as bb:
            await back(bb, left)
            await read_on(bb, ledger)

    assert sent == came
    assert sent_back == came_back
    assert sent != sent_back, "there was something to do there"
    assert [] == audit(Path(last.removeprefix("sqlite:///")), ledger)
    assert {1} == set(Counter(job for job, _ in course.ran).values()), "each ran once"
    assert {"here", "there", "back"} == {place for _, place in course.ran}
    told = {request.headers["webhook-id"] for request in receiver.requests}
    assert 7 == len(told), "each end was told, and under one id"


async def ended(bb, job_id):
    job = await Ticket(Submitted(job_id, ""), bb.engine).wait(timeout=PATIENCE)
    assert job.state.is_final, f"{job.capability} {job.id} is {job.state}"
    return job


async def all_over(bb, capability=None):
    """Wait until nothing is left that could run, deliveries included."""
    states = [JobState.QUEUED, JobState.RUNNING] * 2
    for state in states if capability else [JobState.BLOCKED, *states]:
        for job in await bb.engine.jobs(JobFilter(state=state, capability=capability)):
            await ended(bb, job.id)
