import sqlite3

import pytest
import sqlalchemy as sa

from backburner.domain.errors import ConfigurationError, StoreFull, StoreUnavailable
from backburner.ports.faults import NoFaults
from backburner.stores.sqlite.database import Database, as_ours, translated
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock

NO_ERRORS = {"SQLITE_OK", "SQLITE_ROW", "SQLITE_DONE"}
OUR_FAULTS = {
    "SQLITE_ABORT",
    "SQLITE_CONSTRAINT",
    "SQLITE_EMPTY",
    "SQLITE_ERROR",
    "SQLITE_FORMAT",
    "SQLITE_INTERNAL",
    "SQLITE_MISMATCH",
    "SQLITE_MISUSE",
    "SQLITE_NOLFS",
    "SQLITE_NOTFOUND",
    "SQLITE_NOTICE",
    "SQLITE_RANGE",
    "SQLITE_SCHEMA",
    "SQLITE_TOOBIG",
    "SQLITE_WARNING",
}
"""What only a wrong statement can bring about: seen as it is, never as a 503."""

PRIMARY = (
    "ABORT AUTH BUSY CANTOPEN CONSTRAINT CORRUPT DONE EMPTY ERROR FORMAT FULL INTERNAL "
    "INTERRUPT IOERR LOCKED MISMATCH MISUSE NOLFS NOMEM NOTADB NOTFOUND NOTICE OK PERM "
    "PROTOCOL RANGE READONLY ROW SCHEMA TOOBIG WARNING"
)
ERRORS = sorted({f"SQLITE_{name}" for name in PRIMARY.split()} - NO_ERRORS)
EXTENDED = sorted(
    name
    for name in vars(sqlite3)
    if name.startswith(("SQLITE_IOERR_", "SQLITE_BUSY_", "SQLITE_CANTOPEN_"))
)


def an_error(name):
    error = sqlite3.OperationalError(name)
    error.sqlite_errorcode = getattr(sqlite3, name)
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_of_sqlite_is_ours_or_a_fault_of_ours(name):
    ours = as_ours(an_error(name))

    assert (name in OUR_FAULTS) == (ours is None)


@pytest.mark.parametrize("name", EXTENDED)
def test_a_finer_code_is_the_same_error(name):
    assert isinstance(as_ours(an_error(name)), StoreUnavailable)


def test_a_full_disk_is_told_apart():
    assert isinstance(as_ours(an_error("SQLITE_FULL")), StoreFull)


def test_an_error_is_known_inside_sqlalchemys():
    wrapped = sa.exc.OperationalError("SELECT", {}, an_error("SQLITE_BUSY"))

    with pytest.raises(StoreUnavailable, match="SQLITE_BUSY"), translated():
        raise wrapped


def test_a_statements_text_and_values_stay_out_of_the_message():
    wrapped = sa.exc.OperationalError(
        "SELECT", {"a": "secret"}, an_error("SQLITE_BUSY")
    )

    assert "the database cannot be used: SQLITE_BUSY" == str(as_ours(wrapped))


def test_a_file_that_cannot_be_used_is_ours():
    with pytest.raises(StoreUnavailable, match="No such file"), translated():
        raise FileNotFoundError(2, "No such file or directory", "/secret/path")


def test_a_programming_fault_stays_what_it_is():
    with pytest.raises(sqlite3.ProgrammingError), translated():
        raise sqlite3.ProgrammingError("wrong number of bindings")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_url_that_names_no_file_is_refused(url):
    with pytest.raises(ConfigurationError, match=r"BACKBURNER_STORE.*names no file"):
        SqliteStore.from_url(url, FrozenClock(), NoFaults())


async def test_a_file_that_is_no_database_is_refused_by_the_settings_name(path):
    path.write_text("not a database, but long enough to be taken for one" * 100)
    store = SqliteStore.from_url(f"sqlite:///{path}", FrozenClock(), NoFaults())

    with pytest.raises(ConfigurationError) as told:
        await store.open()
    assert f"BACKBURNER_STORE: {path} is not an SQLite database" == str(told.value)


async def test_a_folder_is_refused_by_the_settings_name(path):
    path.mkdir()
    store = SqliteStore.from_url(f"sqlite:///{path}", FrozenClock(), NoFaults())

    with pytest.raises(ConfigurationError) as told:
        await store.open()
    assert str(told.value).startswith(f"BACKBURNER_STORE: {path} cannot be opened: ")


async def test_a_file_in_a_folder_that_is_missing_is_refused(path):
    deep = path.parent / "a" / "b" / "jobs.db"
    store = SqliteStore.from_url(f"sqlite:///{deep}", FrozenClock(), NoFaults())

    with pytest.raises(ConfigurationError, match="there is no folder"):
        await store.open()
    await store.close()

    assert not deep.parent.exists()


async def test_a_link_to_the_file_has_the_same_lock(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "there" / "jobs.db")
    stores = [
        SqliteStore.from_url(f"sqlite:///{path}", FrozenClock(), NoFaults())
        for path in (link, link.resolve())
    ]
    for store in stores:
        await store.open()
        await store.close()

    assert 1 == len({store.database.path for store in stores})
    assert [] == [*tmp_path.glob("link.db-*")]
    assert (tmp_path / "there" / "jobs.db-lock").exists()


def test_a_file_without_a_write_ahead_log_is_refused(tmp_path, monkeypatch):
    connect = sqlite3.connect

    def without_shared_memory(path, *_, **options):
        return connect(f"file:{path}?vfs=unix-dotfile", uri=True, **options)

    monkeypatch.setattr("sqlite3.dbapi2.connect", without_shared_memory)
    database = Database(tmp_path / "jobs.db")
    with pytest.raises(ConfigurationError, match="journal mode is 'delete'"):
        database.connect()
    database.dispose()
