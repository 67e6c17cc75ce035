"""Each error of the driver is ours, or a fault of ours; none is left to chance."""

import inspect
import socket

import asyncpg
import pytest
import sqlalchemy as sa

from backburner.domain.errors import ConfigurationError, StoreFull, StoreUnavailable
from backburner.ports.faults import NoFaults
from backburner.stores.postgres import database
from backburner.stores.postgres.database import as_ours
from backburner.stores.postgres.store import PostgresStore

ERRORS = {
    error.sqlstate: error
    for _, error in inspect.getmembers(asyncpg.exceptions, inspect.isclass)
    if issubclass(error, asyncpg.PostgresError) and error.sqlstate
}
OUR_FAULTS = {
    "03",
    "09",
    "0A",
    "0B",
    "0F",
    "0L",
    "0P",
    "0Z",
    "10",
    "20",
    "21",
    "22",
    "23",
    "24",
    "25",
    "26",
    "27",
    "2B",
    "2D",
    "2F",
    "34",
    "38",
    "39",
    "3B",
    "3F",
    "42",
    "44",
    "54",
    "HV",
    "P0",
}
"""Classes of errors that only a wrong statement or value can bring about."""
BUT = {"25006", "25P03", "42501"}
"""A standby, a session that was idle too long, rights that were taken away."""
CLIENTS = [
    error
    for _, error in inspect.getmembers(asyncpg.exceptions, inspect.isclass)
    if issubclass(error, (asyncpg.InterfaceError, asyncpg.InternalClientError))
]


@pytest.mark.parametrize("sqlstate", sorted(ERRORS))
def test_every_error_of_the_server_is_ours_or_a_fault_of_ours(sqlstate):
    is_fault = sqlstate[:2] in OUR_FAULTS and sqlstate not in BUT

    assert is_fault == (as_ours(ERRORS[sqlstate]("told")) is None)


@pytest.mark.parametrize("error", CLIENTS)
def test_every_error_of_the_client_means_that_nothing_is_promised(error):
    assert isinstance(as_ours(error("told")), StoreUnavailable)


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), TimeoutError(), sa.exc.TimeoutError()]
)
def test_a_lost_or_missing_connection_is_ours(error):
    assert isinstance(as_ours(error), StoreUnavailable)


def test_a_full_disk_is_told_apart():
    assert isinstance(as_ours(asyncpg.DiskFullError("told")), StoreFull)


def test_a_statements_text_and_values_stay_out_of_the_message():
    original = Exception()
    original.__cause__ = asyncpg.AdminShutdownError("secret")
    wrapped = sa.exc.OperationalError("SELECT", {"a": "secret"}, original)

    assert "the database cannot be used: AdminShutdownError" == str(as_ours(wrapped))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "postgresql://ann:secret@127.0.0.1:1/jobs",
            "connection refused; is PostgreSQL running at 127.0.0.1:1?",
        ),
        (
            "postgresql://ann:secret@localhost:1/jobs",
            "connection refused; is PostgreSQL running at localhost:1?",
        ),
        (
            "postgresql://ann:secret@nohost.invalid/jobs",
            "the host nohost.invalid is unknown",
        ),
        (
            "postgresql:///jobs?host=/no/such/folder",
            "PostgreSQL at its socket cannot be reached: No such file or directory",
        ),
    ],
)
async def test_a_server_that_is_not_there_is_refused_with_the_reason(url, reason):
    store = PostgresStore(url, faults=NoFaults())

    with pytest.raises(ConfigurationError) as told:
        await store.open()
    await store.close()
    assert f"BACKBURNER_STORE: {reason}" == str(told.value)


async def test_a_silent_server_is_named(monkeypatch):
    monkeypatch.setattr(database, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        store = PostgresStore(f"postgresql://u:secret@{place}/d", faults=NoFaults())
        with pytest.raises(ConfigurationError) as told:
            await store.open()
        await store.close()

    reason = f"no answer from PostgreSQL at {place} within 0.1 s"
    assert f"BACKBURNER_STORE: {reason}" == str(told.value)


async def test_a_database_that_does_not_exist_is_named(postgres_url):
    url = sa.make_url(postgres_url).set(database="nodb")
    store = PostgresStore(url.render_as_string(hide_password=False), faults=NoFaults())

    with pytest.raises(ConfigurationError) as told:
        await store.open()
    await store.close()
    assert (
        "BACKBURNER_STORE: the database 'nodb' does not exist: create it, or correct "
        "the URL"
    ) == str(told.value)
