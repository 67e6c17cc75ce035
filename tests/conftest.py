"""
How tests are dealt out to processes, and their servers.

A missing server skips at home and fails in CI.
"""

import asyncio
import functools
import gc
import os
import secrets
import shutil
import zlib
from contextlib import contextmanager

import asyncpg
import botocore.loaders
import httpcore2
import hypothesis
import pytest
import redis
from xdist.scheduler import LoadScopeScheduling

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.ports.faults import NoFaults
from bench import buckets
from tests import bot_api, homes, warm
from tests.aimock import started
from tests.databases import Migrated

pytest_plugins = ["tests.brief", "tests.cpu", "tests.hanging"]
gc.disable()  # until the tests are collected: nothing of that is garbage
# Tests make thousands of HTTP clients; each would load all certificate authorities.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)
# Each client of AWS would read the description of its service again.
botocore.loaders.create_loader = functools.cache(botocore.loaders.create_loader)
hypothesis.settings.register_profile("suite", deadline=None)  # machines may be busy
hypothesis.settings.load_profile("suite")
pytest.register_assert_rewrite("backburner.testing.broker", "backburner.testing.store")

FIRST = (
    "tests/simulation/test_simulation.py",
    "tests/examples/test_plugins.py",
    "tests/bench/test_run.py",
    "tests/faults/",
    "tests/chaos/",
    "tests/apps/",
    "tests/simulation/",
    "tests/conformance/test_postgres_store.py",
    "tests/cli/",
    "tests/store/",
)
"""What takes long begins early, so that no process is busy alone at the end."""
DIVIDED = {"tests/conformance/test_postgres_store.py": 8}
"""Files that take too long for one process, and into how many parts they go."""
ONE_BROKER = (
    "tests/apps/tasks/test_chaos.py",  # they have the queues that the services have
    "tests/apps/tasks/test_processes.py",
    "tests/apps/tasks/test_stopping.py",
)
SERVER = "BACKBURNER_TEST_POSTGRES_URL"
RABBITMQ = "BACKBURNER_TEST_RABBITMQ_URL"
REDIS = "BACKBURNER_TEST_REDIS_URL"
SQS = "BACKBURNER_TEST_SQS_URL"
S3 = "BACKBURNER_TEST_S3_URL"
EMPTY = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid();
DROP SCHEMA public CASCADE;
CREATE SCHEMA public;
"""


class Schedule(LoadScopeScheduling):
    """Gives whole files to processes, those that take longest first."""

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        if file in ONE_BROKER:
            return ONE_BROKER[0]
        if file in DIVIDED:
            return f"{file} {zlib.crc32(nodeid.encode()) % DIVIDED[file]}"
        return file


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False  # else by how many tests a file has
    return Schedule(config, log)


def pytest_addoption(parser):
    options = parser.getgroup("chaos")
    options.addoption("--chaos-report", default="", help="a file, or - for stdout")
    options.addoption("--chaos-seed", type=int, default=1)
    options.addoption(
        "--chaos-seconds", type=float, default=600, help="how long a load is kept up"
    )


def pytest_terminal_summary(terminalreporter):
    """Show what tests have to tell in every run, whichever process ran them."""
    reports = terminalreporter.getreports
    told = [
        text
        for report in [*reports("passed"), *reports("failed")]
        for name, text in report.user_properties
        if name == "told"
    ]
    for text in told:
        terminalreporter.write_line(text)


def pytest_collection_modifyitems(config, items):
    """Leave out what is made for a store that this run is not about."""
    away = [item for item in items if not homes.is_at_home(item)]
    items[:] = [item for item in items if homes.is_at_home(item)]
    config.hook.pytest_deselected(items=away)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(item.nodeid))


def place_of(test):
    """Return how late a test's file is given out; files of one place keep order."""
    places = (n for n, prefix in enumerate(FIRST) if test.startswith(prefix))
    return next(places, len(FIRST))


def pytest_collection_finish():
    """Have later collections of garbage leave out what lives as long as the run."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # the same as in servers and workers
    gc.enable()


@pytest.fixture(autouse=True)
def _transport(request, monkeypatch):
    """Have every instance over PostgreSQL told of work as this run wants it."""
    if homes.BROKER and homes.is_on_postgres(request.node):
        transport = homes.transport(request.node.nodeid)
        monkeypatch.setenv("BACKBURNER_TRANSPORT", transport)


@pytest.fixture(autouse=True)
def _executed(request, monkeypatch):
    """Start processes by a true `exec` in tests that are marked so."""
    if request.node.get_closest_marker("executed"):
        monkeypatch.setattr(warm.WARM, "is_off", True)


@pytest.fixture
def home_url(request):
    """A database of the kind that this run is about first, for a test of any kind."""
    if homes.STORES[0] == "postgres":
        return request.getfixturevalue("migrated_url")
    return f"sqlite:///{request.getfixturevalue('path')}"


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A migrated file, to be copied: migrations take longer than most tests."""
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    store = find_store(f"sqlite:///{path}", SystemClock(), NoFaults())
    asyncio.run(store.migrate())
    store.database.dispose()
    return path


@pytest.fixture
def store_url(request, tmp_path, template):
    """A store of the kind that this run is about first, or that a test asks for."""
    if getattr(request, "param", homes.STORES[0]) == "postgres":
        return request.getfixturevalue("migrated_url")
    shutil.copy(template, tmp_path)
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture(scope="session")
def postgres_server():
    """The server that `tools/services` found."""
    return found(SERVER)


@pytest.fixture(scope="session")
def rabbitmq_url():
    """The RabbitMQ server that `tools/services` found."""
    return found(RABBITMQ)


@pytest.fixture(scope="session")
def redis_url():
    """The Redis server that `tools/services` found."""
    return found(REDIS)


@pytest.fixture
def redis_database(redis_url):
    """A numbered database of that server, empty: no other process of tests has it."""
    mine = 1 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    url = f"{redis_url.rpartition('/')[0]}/{mine}"
    with redis.Redis.from_url(url) as server:
        server.flushdb()
        yield url
        server.flushdb()


@pytest.fixture(scope="session")
def sqs_url():
    """The server that speaks like SQS, as `tools/services` found it."""
    return found(SQS)


@pytest.fixture(scope="session")
def s3_endpoint():
    """The server that speaks like S3, as `tools/services` found it."""
    return found(S3)


@pytest.fixture(scope="session")
def _bucket(s3_endpoint):
    """A bucket of this process on the server that speaks like S3."""
    return buckets.made(s3_endpoint)


@pytest.fixture
def s3_url(_bucket):
    """A place for blobs with nothing in it, on a server that speaks like S3."""
    bucket, query = _bucket
    return f"{bucket}/{secrets.token_hex(6)}?{query}"


def found(variable):
    server = os.environ.get(variable)
    if not server:
        missing = f"{variable} is not set: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return server


@pytest.fixture(scope="session")
def _database(postgres_server):
    """A database of this process on that server."""
    name = f"test_{secrets.token_hex(6)}"
    asyncio.run(_execute(postgres_server, f'CREATE DATABASE "{name}"'))
    yield postgres_server.rsplit("/", 1)[0] + f"/{name}"
    asyncio.run(_execute(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture
async def postgres_url(_database):
    """A database with nothing in it; emptied, as each new one takes a checkpoint."""
    await _execute(_database, EMPTY)
    return _database


@contextmanager
def _kept_schema(server):
    """Make a database that keeps its schema."""
    name = f"test_{secrets.token_hex(6)}"
    asyncio.run(_execute(server, f'CREATE DATABASE "{name}"'))
    migrated = Migrated(server.rsplit("/", 1)[0] + f"/{name}")
    yield migrated
    migrated.close()
    asyncio.run(_execute(server, f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture(scope="session")
def _migrated(postgres_server):
    """A second database of this process, which keeps its schema."""
    with _kept_schema(postgres_server) as migrated:
        yield migrated


@pytest.fixture(scope="session")
def migrated_for_files(postgres_server):
    """A third one, for servers that stay for a whole file; each file cleans it."""
    with _kept_schema(postgres_server) as migrated:
        yield migrated


@pytest.fixture
def migrated_url(_migrated):
    """A database with the schema in it and nothing else."""
    _migrated.clean()
    return _migrated.url


async def _execute(url, statements):
    connection = await asyncpg.connect(url)
    await connection.execute(statements)
    await connection.close()


@pytest.fixture(scope="session")
def _aimock(tmp_path_factory):
    """A fake LLM server of this process."""
    with started(tmp_path_factory.mktemp("aimock")) as mock:
        yield mock


@pytest.fixture
def aimock(_aimock):
    """A fake LLM server that has been told nothing yet."""
    _aimock.reset()
    return _aimock


@pytest.fixture(scope="session")
def telegram():
    """A Bot API server of this process, for tests with tokens of their own."""
    with bot_api.started() as server:
        yield server
