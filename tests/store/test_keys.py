"""What checking a key costs the store, and when a revocation is known."""

from datetime import timedelta

import pytest

from backburner.domain.errors import ConfigurationError, InvalidInput, StoreUnavailable
from backburner.engine.access.keys import Actor, Keys, NewKey
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock, SeededDice

ROOT = Actor("root", "t")
PEPPER = "a pepper that only the tests know"


class Counting:
    """A store that counts how often it is asked for a key, and told of a use."""

    def __init__(self, store):
        self._store = store
        self.found = self.touched = 0
        self.is_broken = False

    async def find_key(self, key_id):
        self.found += 1
        return await self._store.find_key(key_id)

    async def touch_key(self, key_id, **times):
        self.touched += 1
        if self.is_broken:
            raise StoreUnavailable("broken")
        await self._store.touch_key(key_id, **times)

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
async def store(path, clock):
    store = SqliteStore(Database(path), clock)
    await store.open()
    yield Counting(store)
    await store.close()


@pytest.fixture
def make(store, clock):
    dice = SeededDice()

    def keys(pepper=PEPPER):
        return Keys(store, clock, dice, pepper=pepper)

    return keys


async def test_many_requests_with_one_key_are_one_question(make, store):
    keys = make()
    key, text = await keys.create(NewKey("a key"), ROOT)
    checked = [await keys.check(text) for _ in range(100)]

    assert {key.id} == {found.id for found in checked}
    assert (1, 1) == (store.found, store.touched)


async def test_the_store_is_asked_again_after_five_seconds(make, store, clock):
    keys = make()
    _, text = await keys.create(NewKey("a key"), ROOT)
    await keys.check(text)
    clock.advance(timedelta(seconds=5))
    await keys.check(text)

    assert 2 == store.found


async def test_a_wrong_sum_is_refused_before_the_store_is_asked(make, store):
    keys = make()
    _, text = await keys.create(NewKey("a key"), ROOT)

    assert await keys.check(text[:-1]) is None
    assert await keys.check(text[:-1] + "_") is None
    assert 0 == store.found


async def test_a_use_is_noted_once_a_minute(make, store, clock):
    keys = make()
    _, text = await keys.create(NewKey("a key"), ROOT)
    await keys.check(text)
    clock.advance(timedelta(seconds=59))
    await keys.check(text)
    early = store.touched
    clock.advance(timedelta(seconds=1))
    await keys.check(text)
    [kept] = await keys.list()

    assert (1, 2) == (early, store.touched)
    assert clock.now() == kept.last_used_at


async def test_a_use_that_cannot_be_noted_does_not_stop_a_request(make, store):
    keys = make()
    key, text = await keys.create(NewKey("a key"), ROOT)
    store.is_broken = True

    assert key.id == (await keys.check(text)).id


async def test_a_revocation_is_known_here_at_once_and_elsewhere_in_seconds(make, clock):
    here, elsewhere = make(), make()
    key, text = await here.create(NewKey("a key"), ROOT)
    before = [await keys.check(text) for keys in (here, elsewhere)]
    await here.revoke(key.id, ROOT)
    soon = [await keys.check(text) for keys in (here, elsewhere)]
    clock.advance(timedelta(seconds=5))

    assert [key.id, key.id] == [found.id for found in before]
    assert [True, False] == [found is None for found in soon]
    assert await elsewhere.check(text) is None


async def test_a_key_made_with_another_pepper_is_of_no_use(make):
    _, text = await make("another pepper").create(NewKey("a key"), ROOT)

    assert await make().check(text) is None


async def test_without_a_pepper_no_key_is_made_or_known(make):
    _, text = await make().create(NewKey("a key"), ROOT)

    with pytest.raises(ConfigurationError, match="BACKBURNER_KEY_PEPPER"):
        await make("").create(NewKey("a key"), ROOT)
    assert await make("").check(text) is None


async def test_what_is_kept_holds_nothing_of_the_secret(make, path):
    _, text = await make().create(NewKey("a key"), ROOT)
    secret = text.split("_")[3].encode()
    kept = [file.read_bytes() for file in path.parent.glob(f"{path.name}*")]

    assert kept
    assert [] == [content for content in kept if secret in content]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (NewKey(""), "name"),
        (NewKey("a\nb"), "name"),
        (NewKey("x" * 201), "name"),
        (NewKey("a key", frozenset()), "scopes"),
        (NewKey("a key", frozenset({"jobs:dance"})), "scopes"),
        (NewKey("a key", user=""), "user"),
        (NewKey("a key", user="a b"), "user"),
        (NewKey("a key", frozenset({"users:act"}), user="u"), "scopes"),
        (NewKey("a key", expires_at=1), "expires_at"),
    ],
)
async def test_a_key_that_makes_no_sense_is_not_made(make, wanted, field):
    keys = make()
    with pytest.raises(InvalidInput) as refused:
        await keys.create(wanted, ROOT)

    assert [field] == [told.path for told in refused.value.fields]
    assert [] == list(await keys.list())


async def test_a_key_that_is_not_good_counts_for_none(make, clock):
    keys = make()
    nothing = await keys.has_good()
    soon = clock.now() + 1000
    await keys.create(NewKey("a key", expires_at=soon), ROOT)
    good = await keys.has_good()
    clock.advance(timedelta(seconds=1))

    assert (False, True, False) == (nothing, good, await keys.has_good())
