"""
How tests are dealt out to processes, and their servers.

A missing server skips at home and fails in CI.
"""

import asyncio
import os
import secrets

import asyncpg
import pytest
from xdist.scheduler import LoadScopeScheduling

from backburner.ports.faults import NoFaults
from backburner.stores.postgres.store import PostgresStore

WHOLE = (
    "tests/faults/",  # a file may have a server of its own
    "tests/simulation/test_simulation.py",  # all look at one run of the seeds
)
SERVER = "BACKBURNER_TEST_POSTGRES_URL"
EMPTY = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid();
DROP SCHEMA public CASCADE;
CREATE SCHEMA public;
"""


class Schedule(LoadScopeScheduling):
    """Deals out single tests, and whole files where they are to stay together."""

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        return file if file.startswith(WHOLE) else nodeid


def pytest_xdist_make_scheduler(config, log):
    return Schedule(config, log)


def pytest_terminal_summary(terminalreporter):
    """Show what tests have to tell in every run, whichever process ran them."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "told":
                terminalreporter.write_line(text)


@pytest.fixture(scope="session")
def postgres_server():
    """The server that `tools/services` found."""

    server = os.environ.get(SERVER)
    if not server:
        missing = f"{SERVER} is not set: run the tests by `make test`"
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


@pytest.fixture
async def migrated_url(postgres_url):
    """A database with the schema in it and nothing else."""
    store = PostgresStore(postgres_url, faults=NoFaults())
    await store.migrate()
    await store.close()
    return postgres_url


async def _execute(url, statements):
    connection = await asyncpg.connect(url)
    await connection.execute(statements)
    await connection.close()
