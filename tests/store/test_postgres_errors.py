"""Each error of the driver is ours, or a fault of ours; none is left to chance."""

import inspect

import asyncpg
import pytest
import sqlalchemy as sa

from backburner.domain.errors import ConfigurationError, StoreFull, StoreUnavailable
from backburner.ports.faults import NoFaults
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


async def test_a_server_that_is_not_there_is_refused_by_the_settings_name():
    url = "postgresql://ann:secret@127.0.0.1:1/jobs"
    store = PostgresStore(url, faults=NoFaults())

    with pytest.raises(ConfigurationError, match="BACKBURNER_STORE") as told:
        await store.open()
    await store.close()
    assert "secret" not in str(told.value)
