"""Other programs and a broker's own tools, as those who use them would write them."""

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pika
import pytest
from pydantic import BaseModel
from redis import Redis

from backburner import Backburner, Context, PermanentError, capability
from backburner.domain.jobs.job import JobState, Owner
from backburner.ports.store.maintenance import JobFilter
from backburner.settings import Settings
from backburner.testing.broker.acts import pause

PRODUCERS = Path(__file__).parents[2] / "examples" / "producers"
PATIENCE = 180.0
SECONDS = 60
AMQPLIB = "amqplib@2.3.1"
WEEK_MS = 7 * 86_400_000


class Name(BaseModel):
    name: str


class Tools:
    """A broker as an operator or another program sees it."""

    def __init__(self, url):
        prefix = f"test-{secrets.token_hex(4)}"
        self.url = url
        self.greetings = f"{prefix}-greetings"
        self.fickle = f"{prefix}-fickle"
        self.queues = [
            name + ending
            for name in (self.greetings, self.fickle)
            for ending in ("", "-dlq")
        ]
        self.is_mended = False

    def capabilities(self):
        @capability("greet", queue=self.greetings)
        async def greet(_ctx: Context, value: Name) -> str:
            return f"Hello, {value.name}!"

        @capability("fickle", queue=self.fickle, max_attempts=1)
        async def fickle(_ctx: Context, value: str) -> str:
            if not self.is_mended:
                raise PermanentError(f"{value} is broken", code="BROKEN")
            return value

        return [greet, fickle]


class RabbitTools(Tools):
    """RabbitMQ by bare pika."""

    @contextmanager
    def channel(self):
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel

    def put(self, queue, *bodies, message_id=None):
        with self.channel() as channel:
            for body in bodies:
                properties = pika.BasicProperties(message_id=message_id)
                channel.basic_publish("", queue, body, properties, mandatory=True)

    def depth(self, queue):
        with self.channel() as channel:
            return channel.queue_declare(queue, passive=True).method.message_count

    def is_ready(self):
        try:
            for queue in self.queues:
                self.depth(queue)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True

    def peek(self, queue):
        """Look at what lies on a queue, and leave it there."""
        with self.channel() as channel:
            found = []
            while (got := channel.basic_get(queue))[0] is not None:
                found.append((got[1].message_id, json.loads(got[2])))
            return found

    def move(self, source, target):
        """Move all messages as they are, as a shovel does."""
        with self.channel() as channel:
            while (got := channel.basic_get(source))[0] is not None:
                method, properties, body = got
                channel.basic_publish("", target, body, properties, mandatory=True)
                channel.basic_ack(method.delivery_tag)

    def argument(self, queue, name):
        """Ask by a wrong guess: the refusal says what a queue was made with."""
        with self.channel() as channel:
            guess = {"x-queue-type": "quorum", name: 1}
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                channel.queue_declare(queue, durable=True, arguments=guess)
        return refused.value.reply_text.partition("but current is '")[2].split("'")[0]

    def clear(self):
        with self.channel() as channel:
            for queue in self.queues:
                channel.queue_delete(queue)


class RedisTools(Tools):
    """Redis by its own commands."""

    def __init__(self, url):
        super().__init__(url)
        self._redis = Redis.from_url(url)

    def put(self, queue, *bodies, message_id=None):
        for body in bodies:
            named = {"id": message_id} if message_id else {}
            self._redis.xadd(queue, {"body": body} | named)

    def depth(self, queue):
        return self._redis.xlen(queue)

    def is_ready(self):
        return True

    def peek(self, queue):
        return [
            (fields[b"id"].decode(), json.loads(fields[b"body"]))
            for _, fields in self._redis.xrange(queue)
        ]

    def move(self, source, target):
        for number, fields in self._redis.xrange(source):
            self._redis.xadd(target, fields)
            self._redis.xdel(source, number)

    def clear(self):
        self._redis.delete(*self.queues)
        self._redis.close()


@pytest.fixture(
    params=[("rabbitmq", "sqlite"), ("rabbitmq", "postgres"), ("redis", "sqlite")],
    ids="-".join,
)
def place(request):
    """Names of a broker and of a store under it."""
    return request.param


@pytest.fixture
def tools(place, request):
    made = {"rabbitmq": RabbitTools, "redis": RedisTools}[place[0]](
        request.getfixturevalue(f"{place[0]}_url")
    )
    yield made
    made.clear()


@pytest.fixture
def store(place, request, tmp_path):
    if place[1] == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return request.getfixturevalue("migrated_url")


@pytest.fixture
async def backburner(store, tools):
    """An instance with a worker in it, whose queues are there."""
    settings = Settings(
        store=store, transport=tools.url, grace_seconds=0, body_limit=200_000
    )
    async with AsyncExitStack() as stack:
        backburner = Backburner(settings, capabilities=tools.capabilities())
        await stack.enter_async_context(backburner)
        await backburner.start_worker()
        await until(tools.is_ready)
        yield backburner


async def until(condition):
    """Wait until something holds, asked in a thread: pika blocks."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await asyncio.to_thread(condition)):
            await pause()
    return found


async def ended(backburner, count=1, owner=None):
    """Return all jobs when so many have ended."""
    where = JobFilter(owner=owner)
    async with asyncio.timeout(PATIENCE):
        while True:
            jobs = await backburner.engine.store.jobs(where, before=None, limit=99)
            if len(jobs) >= count and all(job.state.is_final for job in jobs):
                return await backburner.engine.store.find([job.id for job in jobs])
            await pause()


async def letters(tools, queue, count=1):
    await until(lambda: tools.depth(f"{queue}-dlq") >= count)
    return await asyncio.to_thread(tools.peek, f"{queue}-dlq")


def a_request(**fields):
    usual = {"capability": "greet", "input": {"name": "Ada"}}
    return json.dumps(usual | fields).encode()


async def test_a_message_of_another_program_becomes_a_job(backburner, tools):
    body = a_request(requestId="r-1", userId="u-7")
    await asyncio.to_thread(tools.put, tools.greetings, body, body)
    jobs = await ended(backburner, owner=Owner("default", "u-7"))
    await until(lambda: not tools.depth(tools.greetings))

    assert [('"Hello, Ada!"', "r-1")] == [(job.output, job.request_id) for job in jobs]
    assert 0 == tools.depth(f"{tools.greetings}-dlq")


async def test_a_message_id_is_as_good_as_a_request_id(backburner, tools):
    for name in ("m-1", "m-1", "m-2"):
        put = (tools.put, tools.greetings, a_request())
        await asyncio.to_thread(*put, message_id=name)
    await until(lambda: not tools.depth(tools.greetings))

    assert 2 == len(await ended(backburner, 2))


async def test_what_cannot_be_taken_lies_among_the_dead_letters(backburner, tools):
    bad = {
        "MALFORMED_BODY": b"hello",
        "UNKNOWN_CAPABILITY": a_request(capability="great"),
        "INVALID_INPUT": a_request(input={"name": 7}),
        "BODY_TOO_LARGE": a_request(input={"name": "x" * 200_000}),
    }
    await asyncio.to_thread(tools.put, tools.greetings, *bad.values(), a_request())
    found = await letters(tools, tools.greetings, len(bad))
    [job] = await ended(backburner)
    await until(lambda: not tools.depth(tools.greetings))

    assert {*bad} == {letter["code"] for _, letter in found}
    assert all(letter["reason"] for _, letter in found)
    told = {letter["code"]: letter["body"].encode() for _, letter in found}
    assert {code: body[: 96 * 1024] for code, body in bad.items()} == told
    assert JobState.SUCCEEDED == job.state


async def test_a_job_that_failed_is_moved_back_and_succeeds(backburner, tools):
    ticket = await backburner.submit("fickle", "it")
    job = await ticket.wait(PATIENCE)
    [(name, letter)] = await letters(tools, tools.fickle)
    tools.is_mended = True
    dead = f"{tools.fickle}-dlq"
    await asyncio.to_thread(tools.move, dead, tools.fickle)
    result = await until_succeeded(ticket)
    await until(lambda: not tools.depth(tools.fickle))

    assert JobState.FAILED == job.state
    assert f"{job.id}.0" == name
    assert ("it", {"code": "BROKEN", "message": "it is broken"}) == (
        letter["input"],
        letter["error"],
    )
    assert (1, '"it"') == (result.generation, result.output)
    assert 0 == tools.depth(dead)


async def until_succeeded(ticket):
    async with asyncio.timeout(PATIENCE):
        while (job := await ticket.job()).state is not JobState.SUCCEEDED:
            await pause()
    return job


async def test_a_refused_message_is_mended_and_moved_back(backburner, tools):
    await asyncio.to_thread(
        tools.put, tools.greetings, a_request(input={"nomen": "Ada"})
    )
    [(_, letter)] = await letters(tools, tools.greetings)
    letter["body"] = letter["body"].replace("nomen", "name")
    await asyncio.to_thread(tools.put, tools.greetings, json.dumps(letter).encode())
    [job] = await ended(backburner)

    assert "input.name: Field required" in letter["reason"]
    assert '"Hello, Ada!"' == job.output


RABBITMQ = pytest.mark.parametrize(
    "place", [("rabbitmq", "sqlite")], indirect=True, ids="-".join
)


@RABBITMQ
@pytest.mark.usefixtures("backburner")
async def test_dead_letters_are_kept_for_a_week(tools):
    await asyncio.to_thread(tools.put, tools.greetings, b"hello")
    await letters(tools, tools.greetings)
    dead = f"{tools.greetings}-dlq"

    assert str(WEEK_MS) == await asyncio.to_thread(
        tools.argument, dead, "x-message-ttl"
    )


@pytest.fixture(scope="session")
def amqplib(pytestconfig):
    """Where Node finds its client; installed once."""
    folder = pytestconfig.cache.mkdir("amqplib")
    with (folder / "lock").open("w") as lock:  # the processes of one run share it
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_amqplib(folder)
    return folder / "node_modules"


def install_amqplib(folder):
    if not (folder / "node_modules" / "amqplib").exists():
        npm = shutil.which("npm")
        if npm is None:
            is_ci = os.environ.get("CI")  # noqa: TID251 - as everywhere for tests
            missing = pytest.fail if is_ci else pytest.skip
            missing("there is no npm")
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--silent")
        subprocess.run(  # noqa: S603 - npm, and what is named here
            [npm, "install", *options, "--prefix", folder, AMQPLIB],
            check=True,
            timeout=SECONDS,
        )


def the_output_of(command, tools, folder=""):
    ended = subprocess.run(  # noqa: S603 - the examples
        [*command, tools.url, tools.greetings, "greet", '{"name": "Ada"}'],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
        env={**os.environ, "NODE_PATH": str(folder)},  # noqa: TID251 - handed on
    )
    return ended.stdout.strip()


@RABBITMQ
async def test_the_example_in_python_asks_for_a_job(backburner, tools):
    command = [sys.executable, PRODUCERS / "producer.py"]
    request_id = await asyncio.to_thread(the_output_of, command, tools)
    [job] = await ended(backburner, owner=Owner("default", "u-7"))

    assert ('"Hello, Ada!"', request_id) == (job.output, job.request_id)


@RABBITMQ
async def test_the_example_in_node_says_that_a_queue_is_not_there(tools, amqplib):
    command = ["node", PRODUCERS / "producer.js"]
    queue = f"nobodys-{secrets.token_hex(4)}"
    asking = subprocess.run(  # noqa: ASYNC221, S603 - the example
        [*command, tools.url, queue, "greet", "{}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "NODE_PATH": str(amqplib)},  # noqa: TID251 - handed on
    )

    assert 1 == asking.returncode
    [line] = asking.stderr.splitlines()
    assert f'queue "{queue}" cannot be used' in line
    assert "NOT_FOUND" in line


@RABBITMQ
async def test_the_example_in_node_asks_for_a_job(backburner, tools, amqplib):
    command = ["node", PRODUCERS / "producer.js"]
    request_id = await asyncio.to_thread(the_output_of, command, tools, amqplib)
    [job] = await ended(backburner, owner=Owner("default", "u-7"))

    assert ('"Hello, Ada!"', request_id) == (job.output, job.request_id)
