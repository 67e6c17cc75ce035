import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from backburner.stores.sqlite.database import Database
from tests import warm

SCRIPT = Path(__file__).with_name("flat_out.py")
ROUNDS = 60


@pytest.fixture
def started(path):
    processes = []

    def started(count, rounds, *options):
        mine = [
            warm.Popen(
                [sys.executable, SCRIPT, path, str(rounds), *options],
                stdin=warm.PIPE,
                stdout=warm.PIPE,
                stderr=warm.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        processes.extend(mine)
        for process in mine:
            assert "ready\n" == process.stdout.readline()
        for process in mine:
            process.stdin.write("go\n")
            process.stdin.flush()
        return mine

    yield started
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def reader(path):
    with Database(path).connect_reader() as connection:
        yield connection


def test_two_processes_that_write_flat_out_never_meet_a_lock(path, started):
    processes = started(2, ROUNDS)
    assert ["half\n"] * 2 == [process.stdout.readline() for process in processes]
    database = Database(path)
    with database.connect_reader() as reader:
        reader.exec_driver_sql("BEGIN")
        before = reader.exec_driver_sql("SELECT count(*) FROM jobs").scalar()
        # Not communicate: what was read ahead of the line "half" would be lost.
        told = [(process.stdout.read(), process.stderr.read()) for process in processes]
        after = reader.exec_driver_sql("SELECT count(*) FROM jobs").scalar()
        reader.exec_driver_sql("COMMIT")
        check = reader.exec_driver_sql("PRAGMA integrity_check").scalar()
        states = reader.exec_driver_sql(
            "SELECT state, count(*) FROM jobs GROUP BY state"
        ).all()

    assert ["", ""] == [errors for _, errors in told]
    settled = [int(output) for output, _ in told]
    assert [("succeeded", ROUNDS * 8)] == states
    assert ROUNDS * 8 == sum(settled)
    assert before == after < ROUNDS * 8
    assert "ok" == check


def test_without_the_lock_the_same_two_processes_do_meet_one(started):
    processes = started(2, ROUNDS, "--without-lock")

    told = [process.communicate(timeout=60) for process in processes]

    assert "SQLITE_BUSY" in str(told)


def test_processes_that_start_at_once_on_a_new_file_all_start(path, started):
    processes = started(4, 1)

    told = [process.communicate(timeout=60) for process in processes]

    assert [""] * 4 == [errors for _, errors in told]
    assert [0] * 4 == [process.returncode for process in processes]
    with Database(path).connect_reader() as reader:
        count = reader.execute(sa.text("SELECT count(*) FROM jobs")).scalar()
    assert 16 == count


def test_a_new_file_is_opened_beside_one_that_prepares_it(path):
    database = Database(path)
    opened = []

    def open_it():
        with database.connect() as connection:
            opened.append(connection.exec_driver_sql("PRAGMA journal_mode").scalar())

    opener = threading.Thread(target=open_it)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        with closing(database.lock()) as lock, lock:
            other.execute("BEGIN IMMEDIATE")
            opener.start()
            opener.join(0.2)
            is_waiting = opener.is_alive()
            other.execute("COMMIT")
        opener.join()

    assert is_waiting
    assert ["wal"] == opened


def test_a_process_that_closes_the_file_leaves_the_log_to_the_others(path):
    database = Database(path)
    with database.connect() as first:
        first.exec_driver_sql("CREATE TABLE kept (n INTEGER)")
        first.commit()
        log = path.with_name(path.name + "-wal")
        before = log.stat().st_ino
        # Whatever opens the file itself would give up this process's locks on it.
        database.connect().close()
        comes_and_goes = f"import sqlite3; sqlite3.connect({str(path)!r}).execute("
        comes_and_goes += "'SELECT count(*) FROM kept').connection.close()"
        warm.run([sys.executable, "-c", comes_and_goes], check=True)

        assert before == log.stat().st_ino
