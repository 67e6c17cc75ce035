"""Servers for the tests: a missing one skips at home and fails in CI."""

import os
import secrets

import asyncpg
import pytest

SERVER = "BACKBURNER_TEST_POSTGRES_URL"


@pytest.fixture
async def postgres_url():
    """A database of its own on the server that `tools/services` found."""

    server = os.environ.get(SERVER)
    if not server:
        missing = f"{SERVER} is not set: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(server)
    await admin.execute(f'CREATE DATABASE "{name}"')
    yield server.rsplit("/", 1)[0] + f"/{name}"
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()
