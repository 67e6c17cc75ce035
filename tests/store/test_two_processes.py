import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from backburner.stores.sqlite.database import Database

SCRIPT = Path(__file__).with_name("flat_out.py")
ROUNDS = 60


@pytest.fixture
def started(path):
    processes = []

    def started(count, rounds, *options):
        mine = [
            subprocess.Popen(
                [sys.executable, SCRIPT, path, str(rounds), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
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
