"""What the tables of applications share: owners, parts, idempotency keys."""

import asyncio

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from backburner import IdempotencyConflict, InvalidInput, Owner
from backburner.engine.submit.idempotency import IdempotencyKey
from backburner.tables import KEY_MS, erase_rows, key_table, owned_by, take_key

ANN, BOB = Owner("acme", "ann"), Owner("acme", "bob")
NOW = 10 * KEY_MS

metadata = sa.MetaData()
keys = key_table("shop_keys", metadata)
orders = sa.Table(
    "shop_orders",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
)
items = sa.Table("shop_items", metadata, sa.Column("of_order", sa.Integer))


class Body(BaseModel):
    """What a client asks for."""

    text: str = "once"


def a_key(key="k", **body):
    return IdempotencyKey.of(key, Body(**body))


@pytest.fixture
def home_url(store_url):
    """Each of the databases."""
    return store_url


@pytest.fixture
async def shop(submitting):
    """An instance whose database has the tables above."""
    backburner = await submitting()
    await backburner.transact(lambda tx: metadata.create_all(tx.connection))
    return backburner


async def taken(shop, request, *, owner=ANN, key=None, now=NOW):
    given = key or a_key()
    return await shop.transact(
        lambda tx: take_key(tx, keys, owner, given, request, now=now)
    )


async def test_a_key_names_the_first_request_for_a_day(shop):
    first = await taken(shop, "r1")
    again = await taken(shop, "r2", now=NOW + KEY_MS - 1)
    another_key = await taken(shop, "r3", key=a_key("l"))
    another_user = await taken(shop, "r4", owner=BOB)
    with pytest.raises(IdempotencyConflict):
        await taken(shop, "r5", key=a_key(text="twice"))
    later = await taken(shop, "r6", key=a_key(text="twice"), now=NOW + KEY_MS)

    assert ["r1", "r1", "r3", "r4", "r6"] == [
        *(first, again, another_key, another_user, later)
    ]


async def test_of_many_that_take_a_key_at_once_one_is_first(shop):
    named = await asyncio.gather(*(taken(shop, f"r{n}") for n in range(5)))

    assert 1 == len({*named})


async def test_a_transaction_that_is_rolled_back_takes_no_key(shop):
    def take(tx):
        take_key(tx, keys, ANN, a_key(), "r1", now=NOW)
        raise LookupError

    with pytest.raises(LookupError):
        await shop.transact(take)

    assert "r2" == await taken(shop, "r2")


@pytest.mark.parametrize("odd", ["", "x" * 256, "\u00e9", "a\nb"])
def test_a_key_that_cannot_be_stored_is_refused(odd):
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        a_key(odd)


async def test_the_parts_of_a_user_s_rows_are_erased_with_them(shop):
    def fill(tx):
        rows = [(n, "ann" if n % 2 else "bob") for n in range(6)]
        named = [{"id": n, "tenant": "acme", "user": user} for n, user in rows]
        tx.connection.execute(orders.insert(), named)
        tx.connection.execute(items.insert(), [{"of_order": n} for n in (1, 1, 2, 3)])

    def erase(tx):
        return erase_rows(tx, orders, ANN, 2, parts=[items.c.of_order])

    def left(view):
        found = sa.select(orders.c.id).where(owned_by(orders, BOB))
        parts = view.connection.execute(sa.select(items)).scalars()
        return sorted(view.connection.execute(found).scalars()), sorted(parts)

    await shop.transact(fill)
    counts = [await shop.transact(erase) for _ in range(3)]

    assert [2, 1, 0] == counts
    assert ([0, 2, 4], [2]) == await shop.read(left)
