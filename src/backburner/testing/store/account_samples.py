"""Samples of the accounts of budgets, and who may see them."""

import asyncio
from datetime import timedelta

import sqlalchemy as sa

from backburner.domain.costs.balance_history import AccountName, BalanceHistory
from backburner.domain.costs.budget import Balance, Budget
from backburner.domain.jobs.job import Owner
from backburner.ports.store import Store
from backburner.ports.store.budgets import HoldRequest, Viewer
from backburner.stores.tables import account_samples
from backburner.testing.samples import ANN, BOB, NOON, a_new_flow, a_new_step
from backburner.testing.store.acts import LetPass, submit

HOUR = timedelta(hours=1)
TWO_DAYS = timedelta(days=2)
MS = timedelta(milliseconds=1)
HUNDRED = Budget("user", tokens=100, per=TWO_DAYS)
HERS = AccountName("user", "acme/ann", "tokens", TWO_DAYS // MS)


async def begin(store: Store, let_pass: LetPass, *budgets: Budget) -> None:
    """Put budgets, and wait until a window of two days begins."""
    await store.put_budgets(budgets or [HUNDRED])
    rest = HERS.per - await store.read_clock() % HERS.per
    let_pass(rest * MS)


async def hers(store: Store) -> BalanceHistory:
    """Return the history of Ann's account."""
    found = await store.account_history(Viewer(), HERS)
    assert found is not None
    return found


async def stored(store: Store) -> int:
    """Return how many samples are stored."""
    query = sa.select(sa.func.count()).select_from(account_samples)
    found: int = await store.transact(
        lambda tx: tx.connection.execute(query).scalar_one()
    )
    return found


class AccountSampleConformance:
    """`sample_accounts`, `account_history` and `forget_samples`."""

    async def test_a_changed_balance_is_sampled_once_in_a_slot(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass)
        counts = [await store.sample_accounts(limit=9)]
        for tokens, pause in ((10, 0), (20, 0), (0, 1), (0, 1), (30, 5)):
            if tokens:
                await submit(store, tokens=tokens)
            let_pass(pause * HOUR)
            counts.append(await store.sample_accounts(limit=9))
        history = await hers(store)

        assert [0, 1, 0, 1, 0, 1] == counts
        start = history.state.account.window
        seen = [((at - start) * MS // HOUR, b.held) for at, b, _ in history.samples]
        assert [(0, 10), (1, 30), (7, 60)] == seen
        assert Balance(held=60) == history.state.balance
        assert await store.read_clock() == history.now

    async def test_processes_that_sample_at_once_store_one_sample(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass)
        await submit(store, tokens=10)
        counts = await asyncio.gather(*(store.sample_accounts(limit=9) for _ in "abc"))
        let_pass(HOUR)
        await submit(store, tokens=10)
        counts += await asyncio.gather(*(store.sample_accounts(limit=9) for _ in "abc"))

        assert 2 == sum(counts)
        assert 2 == await stored(store)

    async def test_accounts_with_the_least_left_are_sampled_first(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass, HUNDRED, Budget("tenant", tokens=9000))
        await submit(store, tokens=10)
        await submit(store, tokens=70, owner=BOB)
        counts = [await store.sample_accounts(limit=1)]
        bobs = await store.account_history(Viewer(), HERS._replace(value="acme/bob"))
        counts += [await store.sample_accounts(limit=9) for _ in range(2)]

        assert bobs is not None
        assert [70] == [sample.balance.held for sample in bobs.samples]
        assert [1, 2, 0] == counts

    async def test_a_sample_has_the_limit_of_its_time(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass)
        await submit(store, tokens=10)
        await store.sample_accounts(limit=9)
        await store.put_budgets([Budget("user", tokens=50, per=TWO_DAYS)])
        await store.reserve(HoldRequest("h", ANN, NOON, tokens=5))
        let_pass(HOUR)
        await store.sample_accounts(limit=9)
        history = await hers(store)

        assert [100, 50] == [sample.limit for sample in history.samples]
        assert 50 == history.state.limit

    async def test_short_windows_are_not_sampled(
        self, store: Store, let_pass: LetPass
    ) -> None:
        short = timedelta(seconds=599)
        await begin(store, let_pass, Budget("user", tokens=100, per=short))
        await submit(store, tokens=10)

        assert 0 == await store.sample_accounts(limit=9)
        name = HERS._replace(per=short // MS)
        found = await store.account_history(Viewer(), name)
        assert found is not None
        assert ([], 10) == ([*found.samples], found.state.balance.held)

    async def test_a_history_is_shown_to_whom_its_account_is_shown(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass, HUNDRED, Budget("capability", tokens=1000))
        await submit(store, tokens=10)
        await store.sample_accounts(limit=9)
        greet = AccountName("capability", "greet", "tokens", 86_400_000)
        unknown = HERS._replace(per=HERS.per * 2), HERS._replace(unit="money")
        viewers = Viewer(), Viewer(ANN), Viewer(BOB), Viewer(Owner("other", "ann"))
        new = HERS._replace(value="acme/new")
        unused = await store.account_history(Viewer(Owner("acme", "new")), new)

        assert [True, True, False, False] == [
            await store.account_history(viewer, HERS) is not None for viewer in viewers
        ]
        assert [True, False] == [
            await store.account_history(viewer, greet) is not None
            for viewer in viewers[:2]
        ]
        assert [None, None] == [
            await store.account_history(Viewer(), name) for name in unknown
        ]
        assert unused is not None, "a budget without use yet is shown to its user"
        assert ([], Balance()) == ([*unused.samples], unused.state.balance)

    async def test_the_history_of_a_flow_is_found_by_its_id(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass, Budget("flow", tokens=100, per=TWO_DAYS))
        [flow] = await store.submit_flows([a_new_flow(a_new_step("a", tokens=60))])
        await store.sample_accounts(limit=9)
        name = AccountName("flow", flow.id, "tokens", HERS.per)
        found = await store.account_history(Viewer(ANN), name)

        assert found is not None
        assert [60] == [sample.balance.held for sample in found.samples]
        assert await store.account_history(Viewer(BOB), name) is None
        assert await store.account_history(Viewer(), name._replace(value="1")) is None

    async def test_samples_end_with_their_window(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass)
        await submit(store, tokens=10)
        await submit(store, tokens=10, owner=BOB)
        await store.sample_accounts(limit=9)
        early = await store.forget_samples(limit=9)
        let_pass(TWO_DAYS)
        await submit(store, tokens=20)
        await store.sample_accounts(limit=9)
        counts = [await store.forget_samples(limit=1) for _ in range(3)]

        assert [0, 1, 1, 0] == [early, *counts]
        assert [20] == [sample.balance.held for sample in (await hers(store)).samples]

    async def test_samples_are_deleted_with_their_account(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass)
        await store.reserve(HoldRequest("h", ANN, NOON, tokens=5))
        await store.sample_accounts(limit=9)
        await store.release_hold("h")
        let_pass(2 * TWO_DAYS)
        before = await stored(store)
        await store.forget_accounts(before=await store.read_clock(), limit=9)

        assert (1, 0) == (before, await stored(store))

    async def test_samples_of_an_erased_user_are_deleted(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass)
        await store.reserve(HoldRequest("h", ANN, NOON, tokens=5))
        await store.reserve(HoldRequest("i", BOB, NOON, tokens=5))
        await store.sample_accounts(limit=9)
        while await store.anonymise(ANN, "erased_1", limit=1):
            pass

        assert 1 == await stored(store)
        bobs = await store.account_history(Viewer(), HERS._replace(value="acme/bob"))
        assert bobs is not None
        assert 1 == len(bobs.samples)

    async def test_a_clock_that_goes_back_leaves_one_sample_in_a_slot(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await begin(store, let_pass)
        await submit(store, tokens=10)
        let_pass(3 * HOUR)
        await store.sample_accounts(limit=9)
        let_pass(-2 * HOUR)
        await submit(store, tokens=10)
        count = await store.sample_accounts(limit=9)
        back = await hers(store)
        let_pass(2 * HOUR)
        again = await store.sample_accounts(limit=9)
        late = await hers(store)

        assert (1, 0) == (count, again)
        assert [20] == [sample.balance.held for sample in back.samples]
        assert [20, 10] == [sample.balance.held for sample in late.samples]
        assert 20 == late.state.balance.held
