"""`move` as an operator runs it: it refuses, goes on, and says what is to be done."""

import json
import signal
import sqlite3
from contextlib import closing

import pytest

from backburner.client import Client
from tests.store.moving import a_store, everything, fill

FIRST = "backburner.db"
LARGE = "y" * 70_000


@pytest.fixture
def first(run, tmp_path):
    """A file with the schema, and nothing in it."""
    run("migrate")
    return tmp_path / FIRST


def the_rows_of(ended):
    moved = [json.loads(line) for line in ended.stdout.splitlines()]
    return {table["table"]: table["rows"] for table in moved}


def submitted(server, *values):
    with Client(server.url) as client:
        return [client.submit("demo.echo", {"text": v}).wait()["id"] for v in values]


def test_an_instance_moves_with_its_large_contents_and_is_found_there(
    run, serve, tmp_path
):
    server = serve()
    small, large = submitted(server, "a few words", LARGE)
    refused = run("move", "--to", "sqlite:///new.db")
    server.told(signal.SIGTERM).exit_code()
    moved = run(
        "move",
        "--to",
        "sqlite:///new.db",
        "--blobs-to",
        f"file://{tmp_path}/new",
        "--json",
    )
    closed = run("worker", "--dev")
    asked = serve(
        BACKBURNER_STORE="sqlite:///new.db", BACKBURNER_BLOBS=f"file://{tmp_path}/new"
    )
    with Client(asked.url) as client:
        found = [client.result(job)["text"] for job in (small, large)]

    assert 5 == refused.returncode
    assert "workers are alive: stop them first (pid " in refused.stderr
    assert (0, 2) == (moved.returncode, the_rows_of(moved)["jobs"])
    assert "set BACKBURNER_STORE to it for all processes" in moved.stderr
    assert f"set BACKBURNER_BLOBS to file://{tmp_path}/new" in moved.stderr
    assert 2 == closed.returncode
    assert f"was moved to sqlite:///{tmp_path}/new.db" in closed.stderr
    assert ["a few words", LARGE] == found


async def test_a_move_that_is_killed_goes_on_and_is_made_once(
    run, first, tmp_path, postgres_url
):
    store = a_store(f"sqlite:///{first}")
    await fill(store, 11)
    await store.close()
    before = everything(first)
    to_server = ("move", "--to", postgres_url, "--json")
    back = ("move", "--from", postgres_url, "--to", "sqlite:///back.db", "--json")
    fates = ("move.leaving", "move.copied:5", "move.left")
    codes = [run(*to_server, BACKBURNER_FAULT=fate).returncode for fate in fates]
    arrived = run(*to_server)
    again = run(*to_server)
    codes += [run(*back, BACKBURNER_FAULT=fate).returncode for fate in fates[1:2]]
    run(*back)

    assert [137] * 4 == codes
    assert (0, "") == (arrived.returncode, arrived.stdout)
    assert (0, "") == (again.returncode, again.stdout)
    assert "rows were compared before" in again.stderr
    assert before == everything(tmp_path / "back.db")
    said = arrived.stderr + run("doctor").stdout + run("worker", "--dev").stderr
    assert f"was moved to postgresql://{postgres_url.split('@')[1]}" in said
    assert postgres_url.split("@")[0] not in said, "no user and no password"


def test_a_move_is_given_up_and_a_second_one_replaces_what_is_left(
    run, first, tmp_path
):
    wanted = ("move", "--to", "sqlite:///new.db")
    run(*wanted, BACKBURNER_FAULT="move.arriving")
    closed = run("worker", "--dev")
    given_up = run("move", "--abandon")
    opened = run("keys", "list")
    twice = run("move", "--abandon")
    refused = run(*wanted)
    replaced = run(*wanted, "--replace")

    assert (2, 0, 0, 5) == (
        closed.returncode,
        given_up.returncode,
        opened.returncode,
        twice.returncode,
    )
    assert "--abandon" in closed.stderr
    assert f"sqlite:///{tmp_path}/new.db is abandoned" in given_up.stderr
    assert (5, 0) == (refused.returncode, replaced.returncode)
    assert "--replace deletes it" in refused.stderr
    assert first.exists()


def test_a_copy_that_differs_is_told_and_nothing_is_left(run, first, tmp_path):
    run("move", "--to", "sqlite:///new.db", BACKBURNER_FAULT="move.counted")
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        connection.execute("INSERT INTO fronts VALUES ('q', 0, 1)")
        connection.commit()

    ended = run("move", "--to", "sqlite:///new.db")
    assert 9 == ended.returncode
    assert "fronts: row ['q', 0] is in the copy only" in ended.stderr
    assert "run `backburner move --replace`" in ended.stderr
    assert 0 == run("move", "--to", "sqlite:///new.db", "--replace").returncode
    assert first.exists()


@pytest.mark.usefixtures("first")
def test_tables_of_others_are_named_and_stay(run, tmp_path):
    with closing(sqlite3.connect(tmp_path / FIRST)) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER PRIMARY KEY)")
    ended = run("move", "--to", "sqlite:///new.db")

    assert "tables that were not moved: invoices" in ended.stderr


@pytest.mark.usefixtures("first")
def test_what_cannot_be_moved_is_said_in_a_line(run):
    ended = {
        told: run("move", *arguments)
        for arguments, told in (
            ((), "--to"),
            (("--to", "postgresql://127.0.0.1:1/none"), "cannot be used"),
            (("--from", "sqlite:///none.db", "--to", "sqlite:///x.db"), "is empty"),
        )
    }

    assert [2, 2, 5] == [answer.returncode for answer in ended.values()]
    assert [] == [told for told, answer in ended.items() if told not in answer.stderr]
    assert not any("Traceback" in answer.stderr for answer in ended.values())
