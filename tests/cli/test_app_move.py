"""`move` takes the tables of applications along, and rebuilds what is derived."""

import shutil
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa

from tests.cli.plugin import install
from tests.store.moving import a_store, read, write

APP = """
import sqlalchemy as sa

from backburner import App

metadata = sa.MetaData()
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
customers = sa.Table(
    "shop_customers",
    metadata,
    sa.Column("id", Number, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("extra", sa.JSON),
    sa.Column("active", sa.Boolean),
    sa.Column("score", sa.Float),
    sa.Column("photo", sa.LargeBinary),
)
carts = sa.Table(
    "shop_carts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("customer", sa.ForeignKey("shop_customers.id"), nullable=False),
)
words = sa.Table(
    "shop_words", sa.MetaData(), sa.Column("word", sa.Text, primary_key=True)
)


def rebuild(connection):
    connection.execute(words.delete())
    names = sa.select(sa.func.upper(customers.c.name)).distinct()
    connection.execute(words.insert().from_select(["word"], names))


app = App(
    "shop",
    migrations="shop.migrations",
    tables=lambda: [carts, customers],
    rebuild=rebuild,
)
"""
REVISION = """
    from shop import metadata, words
    metadata.create_all(op.get_bind())
    words.create(op.get_bind())
    op.execute("INSERT INTO shop_customers (name) VALUES ('seed')")
"""
CUSTOMERS = sa.text("SELECT id, name, active, score FROM shop_customers ORDER BY id")
NO_EXTRA = sa.text("SELECT id FROM shop_customers WHERE extra IS NULL ORDER BY id")
CARTS = sa.text("SELECT id, customer FROM shop_carts ORDER BY id")
WORDS = sa.text("SELECT word FROM shop_words ORDER BY word")
FIRST = "backburner.db"


def rows_of(connection):
    """Return what the application's tables hold, derived ones included."""
    found = [
        [tuple(row) for row in connection.execute(query)]
        for query in (NO_EXTRA, CARTS, WORDS)
    ]
    customers = [
        (row.id, row.name, bool(row.active), row.score)
        for row in connection.execute(CUSTOMERS)
    ]
    return [customers, *found]


def fill(connection):
    """Leave customers with gaps in their numbers, and carts that refer to them."""
    connection.execute(sa.text("DELETE FROM shop_customers"))
    add = sa.text(
        "INSERT INTO shop_customers (id, name, extra, active, score, photo) "
        "VALUES (:id, :name, :extra, :active, :score, :photo)"
    )
    for number in (2, 5, 9):
        values = {
            "id": number,
            "name": f"Ann {number}",
            "extra": '{"a": [1, null]}' if number == 5 else None,
            "active": number == 5,
            "score": number / 3,
            "photo": b"\x00\xff" if number == 2 else None,
        }
        connection.execute(add, values)
    connection.execute(sa.text("DELETE FROM shop_customers WHERE id = 9"))
    for cart, customer in (("a", 5), ("b", 2)):
        connection.execute(
            sa.text("INSERT INTO shop_carts VALUES (:id, :customer)"),
            {"id": cart, "customer": customer},
        )


@pytest.fixture
async def first(run, tmp_path):
    """A SQLite file with the application's rows, whose derived table is out of date."""
    install(tmp_path, REVISION.strip(), app=APP)
    run("migrate", "--app", "shop")
    store = a_store(f"sqlite:///{tmp_path / FIRST}")
    await write(store, fill)
    found = await read(store, rows_of)
    await store.close()
    return found


async def the_rows_in(url):
    store = a_store(url)
    try:
        return await read(store, rows_of)
    finally:
        await store.close()


async def test_tables_move_both_ways_through_kills_and_the_derived_is_rebuilt(
    run, first, tmp_path, postgres_url
):
    there = ("move", "--to", postgres_url)
    back = ("move", "--from", postgres_url, "--to", "sqlite:///back.db")
    fates = ("move.leaving", "move.prepared", "move.copied:2", "move.rebuilt")
    codes = [run(*there, BACKBURNER_FAULT=fate).returncode for fate in fates]
    arrived = run(*there)
    found = await the_rows_in(postgres_url)
    codes += [run(*back, BACKBURNER_FAULT=fate).returncode for fate in fates[1:]]
    run(*back)
    again = await the_rows_in(f"sqlite:///{tmp_path / 'back.db'}")

    assert [137] * 7 == codes
    assert 0 == arrived.returncode
    assert [("ANN 2",), ("ANN 5",)] == found[-1] == again[-1]
    assert first[:-1] == found[:-1] == again[:-1]
    assert "tables that were not moved" not in arrived.stderr


async def test_numbers_that_were_given_are_not_given_again(run, first, postgres_url):
    run("move", "--to", postgres_url)
    store = a_store(postgres_url)
    added = sa.text("INSERT INTO shop_customers (name) VALUES ('new') RETURNING id")
    number = await write(store, lambda c: c.execute(added).scalar())
    await store.close()

    assert 5 == first[0][-1][0]
    assert 5 < number


@pytest.mark.usefixtures("first")
def test_a_store_that_was_left_takes_no_row_of_an_application(run, tmp_path):
    run("move", "--to", "sqlite:///new.db")
    with (
        closing(sqlite3.connect(tmp_path / FIRST)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="the store was moved"),
    ):
        connection.execute("INSERT INTO shop_carts VALUES ('c', 2)")
    back = run("move", "--from", "sqlite:///new.db", "--to", f"sqlite:///{FIRST}")
    replaced = run(
        "move", "--from", "sqlite:///new.db", "--to", f"sqlite:///{FIRST}", "--replace"
    )

    assert (5, 0) == (back.returncode, replaced.returncode)
    with closing(sqlite3.connect(tmp_path / FIRST)) as connection:
        connection.execute("INSERT INTO shop_carts VALUES ('c', 2)")


@pytest.mark.usefixtures("first")
def test_tables_of_an_application_that_is_not_installed_stop_the_move(run, tmp_path):
    shutil.rmtree(tmp_path / "shop")
    shutil.rmtree(tmp_path / "shop-1.dist-info")
    refused = run("move", "--to", "sqlite:///new.db")
    is_begun = "backburner_move" in {*tables_of(tmp_path / FIRST)}
    left = run("move", "--to", "sqlite:///new.db", "--leave", "shop")

    assert (5, 0) == (refused.returncode, left.returncode)
    assert "tables of application 'shop', but it is not installed" in refused.stderr
    assert "--leave shop" in refused.stderr
    assert not is_begun
    assert "not moved: backburner_version_shop, shop_carts" in left.stderr


def tables_of(path):
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master")
        return [name for (name,) in rows]


@pytest.mark.usefixtures("first")
def test_an_application_whose_tables_are_not_up_to_date_stops_the_move(run, tmp_path):
    package = tmp_path / "shop" / "migrations" / "versions" / "0002.py"
    package.write_text('revision = "0002"\ndown_revision = "0001"\n')
    refused = run("move", "--to", "sqlite:///new.db")

    assert 5 == refused.returncode
    assert "tables of application 'shop' are at 0001" in refused.stderr
    assert "run `backburner migrate --app shop` there" in refused.stderr


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ('"shop_carts"', '"jobs"', "two applications declare the table jobs"),
        (
            'sa.Column("id", sa.Text, primary_key=True)',
            'sa.Column("id", sa.Text)',
            "table 'shop_carts' cannot be moved: it needs a primary key",
        ),
    ],
)
@pytest.mark.usefixtures("first")
def test_a_table_that_cannot_be_moved_is_named(run, tmp_path, was, becomes, told):
    module = tmp_path / "shop" / "__init__.py"
    module.write_text(module.read_text().replace(was, becomes, 1))
    refused = run("move", "--to", "sqlite:///new.db")

    assert refused.returncode in {2, 5}
    assert told in refused.stderr
