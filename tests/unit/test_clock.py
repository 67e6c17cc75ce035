import time
from datetime import timedelta
from uuid import RFC_4122, UUID

import pytest

from backburner.clock import StoreClock, SystemClock, SystemDice
from backburner.testing.doubles import FrozenClock, SeededDice
from backburner.testing.samples import NOON

BOTH = pytest.mark.parametrize("kind", [SystemDice, SeededDice])


@BOTH
def test_ids_drawn_later_sort_later_even_when_a_millisecond_is_used_up(kind):
    dice = kind()
    drawn = [dice.uuid(NOON) for _ in range(10_000)]

    assert sorted(set(drawn)) == drawn


@BOTH
def test_ids_keep_their_order_when_the_clock_goes_back(kind):
    dice = kind()

    assert dice.uuid(NOON) < dice.uuid(NOON - 60_000) < dice.uuid(NOON + 1)


@BOTH
def test_an_id_is_a_uuid_of_version_7_that_tells_its_time(kind):
    uuid = UUID(kind().uuid(NOON))

    assert (7, RFC_4122) == (uuid.version, uuid.variant)
    assert NOON == uuid.int >> 80


@BOTH
def test_tokens_have_sixteen_characters_and_differ(kind):
    dice = kind()
    drawn = {dice.token() for _ in range(1_000)}

    assert 1_000 == len(drawn)
    assert {16} == set(map(len, drawn))


@BOTH
def test_a_roll_is_at_least_zero_and_less_than_one(kind):
    dice = kind()
    rolled = [dice.roll() for _ in range(1_000)]

    assert 0 <= min(rolled) < max(rolled) < 1


def test_dice_of_one_seed_fall_alike():
    one, other = SeededDice(7), SeededDice(7)

    assert (one.token(), one.roll()) == (other.token(), other.roll())
    assert SeededDice(8).token() != SeededDice(7).token()


def test_the_machines_clock_counts_milliseconds():
    clock = SystemClock()
    wall, steady = time.time_ns(), time.monotonic_ns()
    now, monotonic = clock.now(), clock.monotonic()

    assert wall // 1_000_000 <= now <= time.time_ns() // 1_000_000
    assert steady // 1_000_000 <= monotonic <= time.monotonic_ns() // 1_000_000


class Wrong(FrozenClock):
    """A machine whose wall clock is set while it runs."""

    ahead = 0

    def now(self):
        return super().now() + self.ahead


def answered(clock, time, *, after=0):
    """Read the store's clock, which takes a while."""

    async def read():
        clock.advance(timedelta(milliseconds=after))
        return time

    return read


async def test_a_clock_that_follows_a_store_shows_its_time_whatever_the_machine_says():
    machine = Wrong()
    clock = StoreClock(machine)
    machine.ahead = 3_600_000

    assert NOON + 3_600_000 == clock.now()
    assert NOON + 7 == await clock.follow(answered(machine, NOON + 7))
    machine.ahead = -3_600_000
    machine.advance(timedelta(seconds=1))
    assert NOON + 1007 == clock.now()


async def test_a_slow_answer_moves_the_time_no_further_than_it_proves():
    machine = FrozenClock()
    clock = StoreClock(machine)
    await clock.follow(answered(machine, NOON))

    await clock.follow(answered(machine, NOON + 100, after=400))
    assert NOON + 400 == clock.now()
    await clock.follow(answered(machine, NOON + 900, after=400))
    assert NOON + 900 == clock.now()
    await clock.follow(answered(machine, NOON + 850))
    assert NOON + 850 == clock.now()
