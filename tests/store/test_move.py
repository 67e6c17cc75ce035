"""A whole store moves to another database: equal, once, whatever happens meanwhile."""

import secrets
import shutil
from datetime import timedelta
from itertools import count

import asyncpg
import pytest
import sqlalchemy as sa

from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.stores import tables
from backburner.stores.move import contents, mover, notice
from backburner.stores.move.mover import CopyDiffers, MoveRefused
from backburner.testing.samples import NOON, a_new_job
from tests.store.moving import a_store, everything, fill, moved, read, write

WORKER = WorkerInfo("w_1", "here", 4711, 1, ("default",), started_at=NOON)
CHANGE = sa.text(
    "UPDATE jobs SET priority = CASE priority WHEN 0 THEN 1 ELSE 0 END WHERE seq = 6"
)
LOSS = sa.text("DELETE FROM events WHERE seq = 6")
LAST_LOSS = sa.text("DELETE FROM usages WHERE seq = (SELECT max(seq) FROM usages)")
SURPLUS = sa.text("INSERT INTO fronts (queue, priority, front) VALUES ('new', 0, 1)")


class Killed(BaseException):
    """The process ends here."""


class KilledAt:
    """Failpoints that end the run at the n-th."""

    def __init__(self, n):
        self._left = n

    def hit(self, name):
        self._left -= 1
        if self._left == 0:
            raise Killed(name)


@pytest.fixture
async def store():
    """Return stores that are closed after the test; none of them is open."""
    made = []

    def make(url):
        made.append(a_store(url))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
def first(store, template, path):
    return store(f"sqlite:///{shutil.copy(template, path)}")


@pytest.fixture(params=["sqlite", "postgres"])
def other(request, store, template, tmp_path):
    """Return an empty store of either kind; again: as another process has it."""
    if request.param == "sqlite":
        url = f"sqlite:///{shutil.copy(template, tmp_path / 'other.db')}"
    else:
        url = request.getfixturevalue("migrated_url")
    return lambda: store(url)


@pytest.fixture
def server(store, migrated_url):
    return store(migrated_url)


@pytest.fixture
def last(store, tmp_path):
    (tmp_path / "last").mkdir()
    return store(f"sqlite:///{tmp_path}/last/jobs.db")


@pytest.fixture
def rows_of(path, tmp_path):
    """Return all that is in the first file, or in the last."""
    return lambda name="first": everything(
        path if name == "first" else tmp_path / "last" / "jobs.db"
    )


def numbers(table):
    return sa.select(sa.func.count()).select_from(tables.metadata.tables[table])


async def count_of(store, table):
    return await read(store, lambda c: c.execute(numbers(table)).scalar())


async def do(store, statement):
    await write(store, lambda c: c.execute(statement))


async def test_every_table_moves_or_is_named_with_its_reason(first):
    made = await read(first, lambda c: {*sa.inspect(c).get_table_names()})
    moving_along = {table.name for table in contents.MOVED}

    assert made - {"backburner_version"} == moving_along | {*contents.LEFT_BEHIND}
    assert moving_along.isdisjoint(contents.LEFT_BEHIND)
    assert all(contents.LEFT_BEHIND.values()), "what stays behind has a reason"


@pytest.mark.parametrize("seed", range(2))
async def test_odd_rows_survive_there_and_back(first, other, last, rows_of, seed):
    await fill(first, seed)
    before = rows_of()
    middle = other()
    there = await moved(first, middle)
    back = await moved(middle, last, name="move_2")

    assert before == rows_of("last"), "every value, its type and every counter"
    assert there == back
    assert {table.name for table in contents.MOVED} == {table.table for table in there}
    assert {9} == {table.rows for table in there}


@pytest.fixture
async def german(postgres_server, store):
    """A server's database that orders texts as a German dictionary does."""
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres_server)
    await admin.execute(
        f'CREATE DATABASE "{name}" TEMPLATE template0'
        " LOCALE_PROVIDER icu ICU_LOCALE 'de' LC_COLLATE 'C' LC_CTYPE 'C'"
        " ENCODING 'UTF8'"
    )
    made = store(postgres_server.rsplit("/", 1)[0] + f"/{name}")
    yield made
    await made.close()
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()


async def test_it_matters_nothing_how_a_server_orders_texts(
    first, server, german, last, rows_of
):
    await fill(first, 3)
    before = rows_of()
    await moved(first, german)
    await moved(german, server, name="move_2")
    await moved(server, last, name="move_3")

    assert before == rows_of("last"), "also from one server to another"


async def test_control_with_a_dictionarys_order_the_comparison_fails(
    first, german, monkeypatch
):
    await fill(first, 3)
    monkeypatch.setattr(contents, "_ordered", lambda _connection, column: column)

    with pytest.raises(CopyDiffers):
        await moved(first, german)


async def test_a_table_that_a_release_adds_moves_along_whatever_its_types(
    first, server, last
):
    added = sa.Table(
        "added",
        sa.MetaData(),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("content", sa.LargeBinary),
        sa.Column("is_good", sa.Boolean),
        sa.Column("share", sa.Double),
    )
    rows = [
        {
            "name": name,
            "at": at,
            "content": bytes(range(256)) if at else None,
            "is_good": [None, True, False][at],
            "share": at / 7,
        }
        for name in ("b", "a", "B", "é", "", "\x01\\x41")
        for at in range(3)
    ]
    await last.migrate()
    for store in (first, server, last):
        await write(store, added.create)
    await write(first, lambda c: c.execute(added.insert(), rows))
    options = {"tables": [added], "chunk": 4}
    await moved(first, server, **options)
    await moved(server, last, name="move_2", **options)

    every = sa.select(added).order_by(added.c.name, added.c.at)
    before, after = [
        await read(store, lambda c: c.execute(every).all()) for store in (first, last)
    ]
    assert before == after
    assert len(rows) == len(after)


async def test_no_number_is_given_twice(first, other, last):
    middle = other()
    await first.open()
    await first.submit([a_new_job(id=f"job_{n}") for n in range(5)])
    await do(first, sa.text("DELETE FROM events WHERE job = 5"))
    await do(first, sa.text("DELETE FROM jobs WHERE seq = 5"))
    await moved(first, middle)
    await middle.open()
    await middle.submit([a_new_job(id="job_there")])
    await middle.close()
    middle = other()
    await moved(middle, last, name="move_2")
    await last.open()
    await last.submit([a_new_job(id="job_back")])

    found = await last.find(["job_there", "job_back"])
    assert {"job_there": 6, "job_back": 7} == {job.id: job.seq for job in found}, (
        "5 was somebody's, and is nobody's again"
    )


async def test_a_store_that_was_moved_is_closed_and_says_where_to(first, other, path):
    middle = other()
    await moved(first, middle)

    with pytest.raises(ConfigurationError, match="was moved to") as refused:
        await first.open()
    await middle.open()
    assert "postgres:" not in str(refused.value), "no user and no password"
    assert str(path) in str(refused.value)


async def test_whoever_has_it_open_cannot_write_to_it_any_more(other, last):
    used, using = other(), other()
    await using.open()
    await using.submit([a_new_job(id="job_before")])
    with pytest.raises(Killed):
        await moved(used, last, name="move_2", faults=KilledAt(1))
    try:
        with pytest.raises(StoreUnavailable):
            await using.submit([a_new_job(id="job_after")])
        with pytest.raises(StoreUnavailable):
            await using.enlist(WORKER)
        await moved(used, last, name="move_3")
        with pytest.raises(StoreUnavailable):
            await using.submit([a_new_job(id="job_later")])
    finally:
        await using.close()

    assert 1 == await count_of(last, "jobs")


async def test_a_move_with_workers_alive_is_refused_and_changes_nothing(other, last):
    used = other()
    await used.open()
    await used.enlist(WORKER)

    with pytest.raises(MoveRefused, match="pid 4711 on here"):
        await moved(used, last, name="move_2")
    await used.submit([a_new_job()])
    assert {
        table.table
        for table in await moved(used, last, name="move_2", lease=timedelta(seconds=-1))
    }, "one whose lease is over is no worker"


async def test_a_store_in_use_is_no_target(first, other):
    target = other()
    await target.open()
    await target.submit([a_new_job()])

    with pytest.raises(MoveRefused, match="is not empty: events has rows"):
        await moved(first, target)
    with pytest.raises(MoveRefused, match="is not empty"):
        await moved(first, target, replace=True)
    await first.open()
    assert 1 == await count_of(target, "jobs")


async def test_what_is_not_there_or_goes_nowhere_is_refused(
    first, store, tmp_path, last
):
    with pytest.raises(MoveRefused, match="is empty"):
        await moved(store(f"sqlite:///{tmp_path}/none.db"), last)
    assert not (tmp_path / "none.db").exists(), "asking for it does not make it"
    with pytest.raises(MoveRefused, match="to where it is"):
        await moved(first, first)


async def test_a_target_of_another_move_is_refused(first, store, tmp_path, last):
    second = store(f"sqlite:///{tmp_path}/second.db")
    await second.migrate()
    await fill(first, 1, count=3)
    await fill(second, 2, count=3)
    with pytest.raises(Killed):
        await moved(first, last, faults=KilledAt(9))

    with pytest.raises(MoveRefused, match="another move that is not over"):
        await moved(second, last, name="move_2")
    with pytest.raises(MoveRefused, match="is being moved to"):
        await moved(first, store(f"sqlite:///{tmp_path}/third.db"))
    with pytest.raises(MoveRefused, match="is being moved to"):
        await moved(first, second, replace=True)
    with pytest.raises(ConfigurationError, match=r"run the move from .* again"):
        await last.open()
    with pytest.raises(ConfigurationError, match="is being moved to"):
        await first.open()
    await second.open()


async def run_by_run(first, middle, **options):
    """Move by runs that are killed at their first, second and third failpoint."""
    runs = count()
    while True:
        try:
            await moved(first, middle, faults=KilledAt(next(runs) % 3 + 1), **options)
        except Killed:
            continue
        return next(runs)


@pytest.mark.thorough
async def test_a_move_that_is_killed_everywhere_goes_on_where_it_was(
    first, other, last, rows_of
):
    await fill(first, 7)
    before = rows_of()
    middle = other()
    killed = await run_by_run(first, middle)
    await run_by_run(middle, last, name="move_2")

    assert before == rows_of("last")
    assert killed > len(contents.MOVED) * 2, "at every chunk, within it and after it"


async def test_control_without_its_progress_a_move_does_not_go_on(
    first, last, monkeypatch
):
    await fill(first, 7)
    monkeypatch.setattr(notice, "replace", lambda *_: True)

    with pytest.raises(sa.exc.IntegrityError):
        await run_by_run(first, last)


async def test_a_move_that_is_over_is_not_made_again(first, other):
    await fill(first, 3, count=3)
    middle = other()
    await moved(first, middle)
    again = await moved(first, middle, name="move_2")

    assert [] == list(again)
    assert 3 == await count_of(middle, "jobs")


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (CHANGE, r"jobs: row \[6\] differs in priority"),
        (LOSS, r"events: row \[6\] is missing in the copy"),
        (LAST_LOSS, r"usages: row \[27\] is missing in the copy"),
        (SURPLUS, r"fronts: row \['new', 0\] is in the copy only"),
    ],
)
async def test_a_row_that_is_not_as_it_was_is_found(first, other, statement, told):
    await fill(first, 5)
    middle = other()
    with pytest.raises(Killed):
        # The last failpoint before both are compared.
        await moved(first, middle, faults=KilledAt(await points(first)))
    await do(middle, statement)

    with pytest.raises(CopyDiffers, match=told):
        await moved(first, middle)
    with pytest.raises(ConfigurationError):
        await middle.open()


async def points(first):
    """Count the failpoints of a move up to where both sides are compared."""
    chunks = [-(-await count_of(first, table.name) // 7) for table in contents.MOVED]
    return 2 + 2 * sum(chunks) + 1


async def test_a_counter_that_is_not_as_it_was_is_found(first, other, monkeypatch):
    await fill(first, 5, count=3)
    monkeypatch.setattr(contents, "set_counters", lambda *_: None)

    with pytest.raises(CopyDiffers, match="counts"):
        await moved(first, other())


async def test_a_move_can_be_given_up(first, other, rows_of):
    await fill(first, 5, count=9)
    before = rows_of()
    middle = other()
    with pytest.raises(Killed):
        await moved(first, middle, faults=KilledAt(30))
    place = await mover.abandon(first.side())
    await first.open()
    after = rows_of()
    await do(first, SURPLUS)

    assert place == middle.side().place
    assert before == after
    with pytest.raises(MoveRefused, match="is not being moved"):
        await mover.abandon(first.side())
    with pytest.raises(MoveRefused, match="--replace deletes it"):
        await moved(first, middle, name="move_2")
    await moved(first, middle, name="move_2", replace=True)
    assert 10 == await count_of(middle, "fronts")
    with pytest.raises(MoveRefused, match="was moved to"):
        await mover.abandon(first.side())


async def test_back_to_the_first_store_only_if_that_is_asked_for(first, other, rows_of):
    await fill(first, 5)
    before = rows_of()
    middle = other()
    await moved(first, middle)
    with pytest.raises(MoveRefused, match="--replace deletes what is left there"):
        await moved(middle, first, name="move_2")
    await moved(middle, first, name="move_2", replace=True)

    assert before == rows_of()
    await first.open()
    with pytest.raises(ConfigurationError, match="was moved to"):
        await middle.open()


async def test_a_running_job_of_a_lost_worker_is_found_where_it_arrives(first, server):
    await first.open()
    await first.enlist(WORKER)
    await first.submit([a_new_job(id="job_lost")])
    [claim] = await first.claim("w_1", "token", [ClaimRequest("default", 1)], now=NOON)
    await moved(first, server, lease=timedelta(seconds=-1))
    await server.open()

    orphans = await server.orphans(lease=timedelta(seconds=10), limit=9)
    assert [claim.id] == [job.id for job in orphans]


async def test_a_row_that_does_not_fit_is_named(first, server):
    await first.open()
    await first.submit([a_new_job(id="job_1")])
    await do(first, sa.text("UPDATE jobs SET request_id = 'a' || char(0) || 'b'"))

    with pytest.raises(ConfigurationError, match=r"jobs: row \[1\].*request_id"):
        await moved(first, server)


async def test_two_runs_at_once_do_not_both_copy(first, last, store):
    await fill(first, 1, count=9)
    twin = store(last.side().place)
    calls = count()

    async def meddle():
        await moved(first, twin)

    with pytest.raises(MoveRefused, match="another run"):
        await interleaved(first, last, meddle, calls)


async def interleaved(first, last, meddle, calls):
    """Have another run come to its end in the middle of this one."""
    side = last.side()
    fill_first = side.fill

    async def fill_later(*arguments):
        if next(calls) == 3:
            await meddle()
        await fill_first(*arguments)

    side.fill = fill_later
    last.side = lambda: side
    await moved(first, last)
