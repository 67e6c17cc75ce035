"""Reservations that a transaction of an application settles."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from backburner.domain.costs.budget import Balance
from backburner.ports.store import Store
from backburner.ports.store.budgets import HoldRequest, Viewer
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import ANN
from backburner.testing.store.acts import DAY, LetPass, Refused, WithWorkers
from backburner.testing.store.budgets import HUNDRED, ann

HOLD = "hold_1"


async def held(store: Store, tokens: int = 70) -> None:
    """Reserve an amount for Ann, for a day."""
    await store.put_budgets([HUNDRED])
    [state] = await store.accounts(Viewer(ANN), limit=9)
    until = state.account.window + 2 * DAY
    await store.reserve(HoldRequest(HOLD, ANN, until, tokens=tokens))


def settle(tokens: int = 60) -> Callable[[Tx], bool]:
    """Return a body that settles the hold."""
    return lambda tx: tx.settle_hold(HOLD, tokens)


def release(tx: Tx) -> bool:
    """Release the hold, as a transaction body."""
    return tx.release_hold(HOLD)


class HoldConformance(WithWorkers):
    """`Tx.settle_hold` and `Tx.release_hold`: once, with the transaction's writes."""

    @pytest.mark.parametrize(
        ("used", "after"),
        [
            (60, Balance(settled=60)),
            (0, Balance()),
            (90, Balance(settled=90, overdraft=20)),
        ],
    )
    async def test_a_hold_is_settled_once_with_what_was_used(
        self, store: Store, used: int, after: Balance
    ) -> None:
        await held(store)

        def twice(tx: Tx) -> list[bool]:
            return [tx.settle_hold(HOLD, used) for _ in range(2)]

        first = await store.transact(twice)
        second = await store.transact(settle(99))

        assert ([True, False], False) == (first, second)
        assert after == await ann(store)

    async def test_a_hold_is_released_once(self, store: Store) -> None:
        await held(store)

        def twice(tx: Tx) -> list[bool]:
            return [tx.release_hold(HOLD) for _ in range(2)]

        first = await store.transact(twice)
        second = await store.transact(release)

        assert ([True, False], False) == (first, second)
        assert Balance() == await ann(store)

    async def test_of_many_who_settle_at_once_one_does(self, store: Store) -> None:
        await held(store)

        done = await asyncio.gather(*(store.transact(settle()) for _ in range(5)))

        assert [False] * 4 + [True] == sorted(done)
        assert Balance(settled=60) == await ann(store)

    async def test_what_is_settled_after_a_release_is_overdraft(
        self, store: Store
    ) -> None:
        await held(store)
        await store.transact(release)
        settled = [await store.transact(settle()) for _ in range(2)]

        assert [True, False] == settled
        assert Balance(settled=60, overdraft=60) == await ann(store)

    async def test_what_is_settled_is_not_released(self, store: Store) -> None:
        await held(store)
        await store.transact(settle())

        assert not await store.transact(release)
        assert Balance(settled=60) == await ann(store)

    async def test_what_freed_itself_is_settled_in_its_window_and_not_released(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await held(store)
        let_pass(timedelta(days=2))
        freed = await store.free_holds(limit=9)
        released = await store.transact(release)
        settled = [await store.transact(settle()) for _ in range(2)]
        [now] = await store.accounts(Viewer(ANN), limit=9)

        assert (1, False, [True, False]) == (freed, released, settled)
        assert Balance(settled=60, overdraft=60) == await ann(store)
        assert Balance() == now.balance, "the window of now has nothing to do with it"

    async def test_past_its_time_but_not_freed_yet_it_is_settled_as_ever(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await held(store)
        let_pass(timedelta(days=2))
        settled = await store.transact(settle())
        freed = await store.free_holds(limit=9)

        assert (True, 0) == (settled, freed)
        assert Balance(settled=60) == await ann(store)

    async def test_a_hold_that_nobody_knows_is_not_ended(self, store: Store) -> None:
        await held(store)
        unknown = [
            await store.transact(lambda tx: tx.settle_hold("hold_2", 5)),
            await store.transact(lambda tx: tx.release_hold("hold_2")),
        ]

        assert [False, False] == unknown
        assert Balance(held=70) == await ann(store)

    @pytest.mark.parametrize("end", [settle(), release], ids=["settle", "release"])
    async def test_a_body_that_fails_leaves_the_hold_as_it_was(
        self, store: Store, end: Callable[[Tx], bool]
    ) -> None:
        await held(store)

        def body(tx: Tx) -> None:
            end(tx)
            raise Refused

        with pytest.raises(Refused):
            await store.transact(body)
        before = await ann(store)

        assert Balance(held=70) == before
        assert await store.transact(end), "and it can still be ended"
