"""The ledger: what is held at submission, and how it is settled."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from backburner.domain.costs.budget import Balance, Budget, Posting, replay
from backburner.domain.costs.usage import RunUsage, Usage
from backburner.domain.errors import BudgetExhausted, HoldExhausted
from backburner.domain.groups.batch import Members
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim, Job, JobState, Owner, Wait, WaitReason
from backburner.domain.jobs.outcome import Cancel, Done, Failed, Outcome, Suspension
from backburner.ports.store import Store
from backburner.ports.store.budgets import HoldRequest, Viewer
from backburner.ports.store.transactions import Tx
from backburner.stores.tables import accounts, entries
from backburner.testing.samples import (
    ANN,
    BOB,
    NOON,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import (
    SECOND,
    LetPass,
    Refused,
    WithWorkers,
    find,
    move,
    retry,
    settlement,
    submit,
)
from backburner.testing.store.steps import result

HUNDRED = Budget("user", tokens=100)
MONEY = Budget("tenant", money=Decimal("0.01"))
FAILED = Failed("BAD", "no", retryable=False)
DAY = timedelta(days=1)


def calls(*tokens: int, cost: int | None = None) -> list[Usage]:
    """Return model calls with a given usage."""
    version = None if cost is None else "v1"
    return [Usage("m", n, 0, cost=cost, price_version=version) for n in tokens]


async def balances(store: Store) -> dict[str, Balance]:
    """Return every account's balance by its value, checked against the ledger."""
    query = sa.select(accounts).order_by(accounts.c.window_at)
    entered = sa.select(entries.c.account, entries.c.kind, entries.c.amount)

    def read(tx: Tx) -> tuple[Any, Any]:
        run = tx.connection.execute
        return run(query).all(), run(entered.order_by(entries.c.seq)).all()

    found, told = await store.transact(read)
    known: dict[str, Balance] = {}
    for row in found:
        balance = Balance(row.held, row.settled, row.overdraft)
        mine = [Posting(e.kind, e.amount) for e in told if e.account == row.seq]
        assert replay(mine) == balance, "the ledger does not lead to the balance"
        known[row.value] = balance
    return known


async def ann(store: Store) -> Balance:
    """Return the balance of Ann's latest account."""
    return (await balances(store))["acme/ann"]


class BudgetConformance(WithWorkers):
    """`submit` and `settle` with budgets, and holds without a job."""

    async def end(
        self,
        store: Store,
        outcome: Outcome,
        usage: Sequence[Usage] = (),
        *,
        token: str = "t1",
    ) -> None:
        """End the next job of the queue."""
        [claim] = await self.claim(store, token=token)
        said = settlement(claim, outcome, usage=usage)
        await store.settle([said])

    async def test_without_budgets_there_is_no_ledger(self, store: Store) -> None:
        await submit(store, tokens=10)
        await self.end(store, Done("1"), calls(5))

        assert {} == await balances(store)

    async def test_what_a_job_may_cost_is_held_until_it_ends(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        before = await ann(store)
        await self.end(store, Done("1"), calls(10, 15))

        assert Balance(held=40) == before
        assert Balance(settled=25) == await ann(store)

    @pytest.mark.parametrize("outcome", [FAILED, Cancel("no")])
    async def test_what_fails_or_is_cancelled_gives_all_back(
        self, store: Store, outcome: Outcome
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        await self.end(store, outcome)

        assert Balance() == await ann(store)

    async def test_what_fails_pays_for_what_it_used(self, store: Store) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        await self.end(store, FAILED, calls(30))

        assert Balance(settled=30) == await ann(store)

    async def test_a_success_that_tells_of_no_use_pays_its_estimate(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        await self.end(store, Done("1"))

        assert Balance(settled=40) == await ann(store)

    async def test_earlier_attempts_of_a_generation_are_paid_for(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        job_id = await submit(store, tokens=40)
        [claim] = await self.claim(store)
        failed = Failed("BAD", "try again", retryable=True)
        await store.settle([settlement(claim, failed, usage=calls(20))])
        between = await ann(store)
        job = await find(store, job_id)
        expired = transitions.expire(job, now=NOON + SECOND)
        await store.move([move(job, expired)])

        assert Balance(held=40) == between
        assert Balance(settled=20) == await ann(store)

    async def test_use_beyond_the_hold_is_overdraft_and_counts(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        await self.end(store, Done("1"), calls(95))
        with pytest.raises(BudgetExhausted) as refused:
            await submit(store, tokens=6)
        await submit(store, tokens=5)

        assert (100, 5) == (refused.value.limit, refused.value.left)
        assert Balance(held=5, settled=95, overdraft=55) == await ann(store)

    async def test_use_beyond_the_hold_counts_while_the_job_runs(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        [claim] = await self.claim(store)
        seen = []
        for used in ([30], [30, 10], [30, 10, 55], [30, 10, 55, 10]):
            run = RunUsage(claim.seq, claim.token, 0, claim.events, calls(*used))
            await store.book([run])
            await store.book([run])
            seen.append(
                (await ann(store), await store.overspent(claim.seq, claim.token))
            )
        with pytest.raises(BudgetExhausted):
            await submit(store, tokens=1)
        done = settlement(claim, Done("1"), usage=calls(30, 10, 55, 10, 7))
        await store.settle([done])

        assert [
            Balance(held=40),
            Balance(held=40),
            Balance(held=40, settled=55, overdraft=55),
            Balance(held=40, settled=65, overdraft=65),
        ] == [balance for balance, _ in seen]
        assert [None, None, None] == [refused for _, refused in seen[:3]]
        assert seen[3][1] is not None, "what is held is used, and nothing is left"
        assert ("user", 100, 0) == (
            seen[3][1].scope,
            seen[3][1].limit,
            seen[3][1].left,
        )
        assert Balance(settled=112, overdraft=72) == await ann(store)

    async def test_use_of_an_attempt_that_is_retried_counts_at_once(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        await self.end(store, Failed("BAD", "try again", retryable=True), calls(90))

        assert Balance(held=40, settled=50, overdraft=50) == await ann(store)

    async def test_use_of_a_run_that_lost_its_job_counts_at_once(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        [lost] = await self.claim(store)
        back = transitions.hand_back(lost, now=NOON)
        await store.settle([settlement(lost, Done("1"))._replace(change=back)])
        [claim] = await self.claim(store, token="t2")
        late = RunUsage(lost.seq, lost.token, 0, lost.events, calls(50))
        own = RunUsage(claim.seq, claim.token, 0, claim.events, calls(60))
        await asyncio.gather(store.book([late]), store.book([own]))
        between = await ann(store)
        done = settlement(claim, Done("1"), usage=calls(60))
        await store.settle([done])

        assert Balance(held=40, settled=70, overdraft=70) == between
        assert Balance(settled=110, overdraft=70) == await ann(store)

    async def test_a_budget_that_is_dropped_stops_nobody(self, store: Store) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        [claim] = await self.claim(store)
        await store.book(
            [RunUsage(claim.seq, claim.token, 0, claim.events, calls(200))]
        )
        refused = await store.overspent(claim.seq, claim.token)
        await store.drop_budget(HUNDRED)

        assert refused is not None
        assert await store.overspent(claim.seq, claim.token) is None

    async def finish(
        self, store: Store, claim: Claim, outcome: Outcome, *used: int
    ) -> None:
        """Settle a claim with a given usage."""
        said = settlement(claim, outcome, usage=calls(*used))
        await store.settle([said])

    async def wait(self, store: Store, *used: int) -> None:
        """Make the next job of the queue use an amount and wait."""
        [claim] = await self.claim(store)
        asleep = Suspension(Wait(WaitReason.SLEEP, None, NOON + 2 * SECOND))
        await self.finish(store, claim, asleep, *used)

    async def resumed(self, store: Store) -> Claim:
        """Return the claim of the job whose wait has ended."""
        await store.promote(now=NOON + 3 * SECOND, limit=9)
        [claim] = await self.claim(store, token="t2")
        return claim

    async def test_a_job_that_waits_keeps_what_it_used_and_reserves_again(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED, Budget("tenant", tokens=1000)])
        await submit(store, tokens=60)
        await self.wait(store, 10)
        waiting = await balances(store)
        claim = await self.resumed(store)
        asked = [store.overspent(claim.seq, claim.token) for _ in range(3)]
        answers = await asyncio.gather(*asked)
        running = await balances(store)
        await self.finish(store, claim, Done("1"), 15)

        assert {"acme/ann": Balance(settled=10), "acme": Balance(settled=10)} == waiting
        assert [None, None, None] == answers
        assert Balance(held=50, settled=10) == running["acme/ann"] == running["acme"]
        assert Balance(settled=25) == await ann(store)

    async def test_a_job_that_waited_is_judged_by_what_others_left(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=60)
        await self.wait(store, 10)
        with pytest.raises(BudgetExhausted):
            await submit(store, tokens=91)
        await submit(store, tokens=90)
        [other] = await self.claim(store, token="t3")
        claim = await self.resumed(store)
        full = await store.overspent(claim.seq, claim.token)
        lost = await store.overspent(claim.seq, "another")
        await self.finish(store, other, Done("1"), 70)
        room = await store.overspent(claim.seq, claim.token)

        assert full is not None
        assert (0, "acme/ann") == (full.left, *await balances(store))
        assert lost is None, "another run has the job: nothing is reserved for this one"
        assert room is None
        assert Balance(held=20, settled=80) == await ann(store), "no more was left"

    async def test_a_job_that_waited_needs_its_whole_rest_where_overrun_stops(
        self, store: Store
    ) -> None:
        await store.put_budgets([Budget("user", tokens=100, overrun="stop")])
        await submit(store, tokens=60)
        await self.wait(store, 10)
        await submit(store, tokens=41, run_at=NOON + DAY_MS)
        claim = await self.resumed(store)
        refused = await store.overspent(claim.seq, claim.token)

        assert isinstance(refused, HoldExhausted)
        assert Balance(held=41, settled=10) == await ann(store)

    async def test_a_job_that_waited_pays_in_the_window_in_which_it_goes_on(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=60)
        await self.wait(store, 10)
        await submit(store, tokens=90, run_at=NOON + DAY_MS)
        let_pass(2 * DAY)
        claim = await self.resumed(store)
        refused = await store.overspent(claim.seq, claim.token)
        states = {state.balance for state in await store.accounts(Viewer(ANN), limit=9)}
        await self.finish(store, claim, Done("1"), 60)

        assert refused is None
        assert {Balance(held=90, settled=10), Balance(held=50)} == states
        assert Balance(settled=60, overdraft=10) == await ann(store)

    @pytest.mark.parametrize(
        ("used", "outcome", "paid"),
        [
            ((), Cancel("no"), Balance()),
            ((10,), Cancel("no"), Balance(settled=10)),
            ((70,), FAILED, Balance(settled=70, overdraft=10)),
            ((10,), Done("1"), Balance(settled=10)),
            ((), Done("1"), Balance(settled=60, overdraft=60)),
        ],
    )
    async def test_a_job_that_waited_and_made_no_further_call(
        self, store: Store, used: Sequence[int], outcome: Outcome, paid: Balance
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=60)
        await self.wait(store, *used)
        await self.finish(store, await self.resumed(store), outcome)

        assert paid == await ann(store)

    async def test_use_that_is_told_after_the_end_is_overdraft(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        job_id = await submit(store, tokens=40)
        [claim] = await self.claim(store)
        job = await find(store, job_id)
        cancel = transitions.cancel(job, "asked", now=NOON + SECOND)
        await store.settle(
            [
                settlement(claim, Done("1"))._replace(
                    change=cancel, consequences=job.consequences
                )
            ]
        )
        released = await ann(store)
        late = RunUsage(claim.seq, claim.token, 0, claim.events, calls(30))
        await store.book([late])
        await store.book([late])

        assert Balance() == released
        assert Balance(settled=30, overdraft=30) == await ann(store)

    async def test_over_the_budget_nothing_is_stored(self, store: Store) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=60)
        with pytest.raises(BudgetExhausted):
            await store.submit([a_new_job(tokens=40), a_new_job(tokens=1)])

        assert 1 == len(await self.claim(store, 9))
        assert Balance(held=60) == await ann(store)

    async def test_one_who_is_refused_costs_nobody_else_their_place(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        asked = [a_new_job(tokens=10, owner=ANN if n % 2 else BOB) for n in range(50)]
        answers = await asyncio.gather(
            *(store.submit([job]) for job in asked), return_exceptions=True
        )

        refused = [a for a in answers if isinstance(a, BudgetExhausted)]
        assert 30 == len(refused), "the budgets have room for ten of each"
        assert 20 == len(await self.claim(store, 99))
        assert {"acme/ann": Balance(held=100), "acme/bob": Balance(held=100)} == (
            await balances(store)
        )

    async def test_all_the_budgets_have_room_or_none_holds(self, store: Store) -> None:
        await store.put_budgets(
            [HUNDRED, Budget("tenant", tokens=150), Budget("capability", tokens=1000)]
        )
        await submit(store, tokens=100)
        with pytest.raises(BudgetExhausted) as refused:
            await submit(store, tokens=51, owner=BOB)
        await submit(store, tokens=50, owner=BOB)

        assert "tenant" == refused.value.scope
        assert {
            "acme": Balance(held=150),
            "acme/ann": Balance(held=100),
            "acme/bob": Balance(held=50),
            "greet": Balance(held=150),
        } == await balances(store)

    async def test_a_budget_of_one_value_takes_the_place_of_the_general_one(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED, Budget("user", tokens=500, of="acme/bob")])
        await submit(store, tokens=400, owner=BOB)

        with pytest.raises(BudgetExhausted):
            await submit(store, tokens=101)

    async def test_what_is_over_is_over_until_the_next_window(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=100)
        with pytest.raises(BudgetExhausted) as refused:
            await submit(store, tokens=1)
        let_pass(timedelta(seconds=refused.value.retry_after))
        await submit(store, tokens=100)

        assert 0 < refused.value.retry_after <= DAY.total_seconds()
        assert refused.value.retryable

    async def test_a_job_is_settled_in_the_window_that_it_was_held_in(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=100)
        let_pass(DAY)
        await self.end(store, Done("1"), calls(70))
        await submit(store, tokens=100)

        assert Balance(held=100) == await ann(store)

    async def test_a_job_that_costs_nothing_for_sure_is_never_refused(
        self, store: Store
    ) -> None:
        await store.put_budgets([Budget("tenant", tokens=0)])
        await submit(store, tokens=0)

        with pytest.raises(BudgetExhausted):
            await submit(store)

    async def test_a_job_that_nobody_knows_the_cost_of_runs_while_any_is_left(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store)
        await self.end(store, Done("1"), calls(100))
        with pytest.raises(BudgetExhausted):
            await submit(store)

        assert Balance(settled=100, overdraft=100) == await ann(store)

    async def test_a_repeat_under_a_key_holds_nothing_more(self, store: Store) -> None:
        await store.put_budgets([HUNDRED])
        keyed = {"idempotency_key": "k", "body_hash": "b", "tokens": 60}
        first = await submit(store, **keyed)
        again = await submit(store, **keyed)

        assert first == again
        assert Balance(held=60) == await ann(store)

    async def test_money_is_held_and_settled_by_what_calls_cost(
        self, store: Store
    ) -> None:
        await store.put_budgets([MONEY])
        await submit(store, tokens=1, money=6_000)
        with pytest.raises(BudgetExhausted):
            await submit(store, tokens=1, money=4_001)
        await self.end(store, Done("1"), calls(1, 1, cost=1_500))
        settled = await balances(store)
        await submit(store, tokens=1, money=5_000)
        await self.end(store, FAILED, calls(1), token="t2")

        assert {"acme": Balance(settled=3_000)} == settled
        assert {"acme": Balance(settled=8_000)} == await balances(store), (
            "a cost that nobody knows was taken for nothing"
        )

    async def test_a_retry_holds_again_or_moves_nothing(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.put_budgets([HUNDRED, Budget("key", tokens=60)])
        dead = await self.failed_with(store, tokens=60, key="key_1")
        await submit(store, tokens=50)
        with pytest.raises(BudgetExhausted):
            await store.reopen([retry(dead)])
        refused = await find(store, dead.id)
        let_pass(DAY)
        [held] = await store.reopen([retry(dead)])
        found = await find(store, dead.id)

        assert (JobState.FAILED, 0) == (refused.state, refused.generation)
        assert held
        assert (JobState.QUEUED, 1) == (found.state, found.generation)
        later = await balances(store)
        assert Balance(held=60) == later["acme/ann"]
        assert Balance(held=60) == later["key_1"], "the key's budget holds no more"

    async def test_a_fresh_retry_that_a_budget_refuses_forgets_no_steps(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        claim = await self.claimed(store, tokens=60)
        await store.save_steps([result(claim)])
        await store.settle([settlement(claim, FAILED)])
        await submit(store, tokens=50)
        with pytest.raises(BudgetExhausted):
            await store.reopen([retry(await find(store, claim.id))], fresh=True)
        assert 1 == len(await store.steps_of(claim.seq))

    async def test_a_retry_is_settled_by_what_its_own_generation_used(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        dead = await self.failed_with(store, calls(30), tokens=60)
        await store.reopen([retry(dead)])
        await self.end(store, Done("1"), calls(20), token="t2")

        assert Balance(settled=50) == await ann(store)

    async def failed_with(
        self, store: Store, usage: Sequence[Usage] = (), **fields: Any
    ) -> Job:
        """Return a dead letter that had a hold."""
        job_id = await submit(store, **fields)
        await self.end(store, FAILED, usage)
        return await find(store, job_id)

    async def test_a_flow_holds_for_all_its_steps_or_is_not_there(
        self, store: Store
    ) -> None:
        await store.put_budgets([Budget("flow", tokens=100)])
        first, second = a_new_step("a", tokens=60), a_new_step("b", "a", tokens=41)
        with pytest.raises(BudgetExhausted):
            await store.submit_flows([a_new_flow(first, second)])
        good = [a_new_step("a", tokens=60), a_new_step("b", "a", tokens=40)]
        await store.submit_flows([a_new_flow(*good)])

        assert 1 == len(await self.claim(store, 9))
        assert [Balance(held=100)] == [*(await balances(store)).values()]

    async def test_steps_that_are_given_up_give_back_what_they_hold(
        self, store: Store
    ) -> None:
        await store.put_budgets([Budget("user", tokens=110)])
        steps = [a_new_step("a", tokens=60), a_new_step("b", "a", tokens=40)]
        [answer] = await store.submit_flows([a_new_flow(*steps)])
        await self.end(store, FAILED, calls(10))
        given_up = await ann(store)
        [flow] = await store.find_flows([answer.id])
        first, _ = await store.steps(flow.seq)
        await store.reopen([retry(first.job)])

        assert Balance(settled=10) == given_up
        assert Balance(held=100, settled=10) == await ann(store)

    async def test_a_flow_that_is_cancelled_gives_all_back(self, store: Store) -> None:
        await store.put_budgets([HUNDRED])
        steps = [a_new_step("a", tokens=60), a_new_step("b", "a", tokens=40)]
        [answer] = await store.submit_flows([a_new_flow(*steps)])
        [flow] = await store.find_flows([answer.id])
        await store.cancel_flow(flow.seq, transitions.cancel_all("no", now=NOON))

        assert Balance() == await ann(store)

    async def test_a_batch_holds_for_all_its_members_or_is_not_there(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        batch = a_new_batch(sealed=True)
        jobs = [a_new_job(tokens=30) for _ in range(3)]
        flow = a_new_flow(a_new_step("a", tokens=11))
        with pytest.raises(BudgetExhausted):
            await store.open_batch(batch, Members(jobs, [flow]))

        assert [] == list(await store.find_batches([batch.id]))
        assert {} == await balances(store)

    async def test_a_transaction_that_is_refused_leaves_nothing_held(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])

        def body(tx: Tx) -> None:
            tx.submit([a_new_job(tokens=50)])
            raise Refused

        with pytest.raises(Refused):
            await store.transact(body)

        assert {} == await balances(store)

    async def test_something_is_held_without_a_job_until_it_is_settled(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        ask = HoldRequest("hold_1", ANN, NOON + SECOND, tokens=70)
        reservation = await store.reserve(ask)
        again = await store.reserve(ask)
        with pytest.raises(BudgetExhausted):
            await store.reserve(ask._replace(id="hold_2"))
        held = await ann(store)
        first = await store.settle_hold("hold_1", tokens=80)
        second = await store.settle_hold("hold_1", tokens=80)

        assert reservation == again
        assert ("hold_1", 70) == reservation[:2]
        assert reservation.window_start is not None
        assert 0 == reservation.window_start % (DAY // timedelta(milliseconds=1))
        assert Balance(held=70) == held
        assert (True, False) == (first, second)
        assert Balance(settled=80, overdraft=10) == await ann(store)

    async def test_a_transaction_reserves_where_no_budget_applies(
        self, store: Store
    ) -> None:
        ask = HoldRequest("hold_1", ANN, NOON + SECOND, tokens=70)
        before = await store.transact(lambda tx: tx.reserve_hold(ask))
        await store.put_budgets([Budget("user", tokens=1, of="acme/bob")])
        after = await store.transact(lambda tx: tx.reserve_hold(ask))

        assert before == after
        assert {} == await balances(store)

    async def test_what_is_held_in_a_transaction_goes_with_it(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        ask = HoldRequest("hold_1", ANN, NOON + SECOND, tokens=70)

        def body(tx: Tx) -> None:
            tx.reserve_hold(ask)
            raise Refused

        with pytest.raises(Refused):
            await store.transact(body)
        before = await balances(store)
        reservation = await store.transact(lambda tx: tx.reserve_hold(ask))
        again = await store.reserve(ask)
        with pytest.raises(BudgetExhausted):
            await store.transact(lambda tx: tx.reserve_hold(ask._replace(id="hold_2")))

        assert {} == before
        assert ("hold_1", 70) == reservation[:2]
        assert reservation == again
        assert Balance(held=70) == await ann(store)

    async def test_what_is_released_is_free_and_what_comes_after_is_overdraft(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED])
        await store.reserve(HoldRequest("hold_1", ANN, NOON, tokens=70))
        released = [await store.release_hold("hold_1") for _ in range(2)]
        free = await ann(store)
        await store.settle_hold("hold_1", tokens=5)

        assert [True, False] == released
        assert Balance() == free
        assert Balance(settled=5, overdraft=5) == await ann(store)

    async def test_what_is_held_without_a_job_frees_itself(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.put_budgets([HUNDRED])
        [early] = await store.accounts(Viewer(ANN), limit=9)
        soon = early.account.window
        await store.reserve(HoldRequest("hold_1", ANN, soon + 2 * DAY_MS, tokens=70))
        await submit(store, tokens=30)
        before = await store.free_holds(limit=9)
        let_pass(2 * DAY)
        after = await store.free_holds(limit=9)

        assert (0, 1) == (before, after)
        assert Balance(held=30) == await ann(store), "the job's hold went, too"

    async def test_budgets_that_operators_put_stand_against_those_of_the_code(
        self, store: Store
    ) -> None:
        await store.put_budgets([HUNDRED], is_declared=True)
        await store.put_budgets([Budget("user", tokens=7)])
        await store.put_budgets([HUNDRED, MONEY], is_declared=True)
        found = await store.budgets()
        dropped = [await store.drop_budget(HUNDRED) for _ in range(2)]

        assert [MONEY, Budget("user", tokens=7)] == list(found)
        assert [True, False] == dropped
        assert [MONEY] == list(await store.budgets())

    async def test_a_caller_sees_what_it_is_charged_to_and_no_more(
        self, store: Store
    ) -> None:
        budgets = [HUNDRED, Budget("capability", tokens=1000)]
        await store.put_budgets(budgets)
        await submit(store, tokens=10)
        await submit(store, tokens=20, owner=BOB)

        everybody = await store.accounts(Viewer(), limit=9)
        bob = await store.accounts(Viewer(BOB), limit=9)
        new = await store.accounts(Viewer(Owner("acme", "new")), limit=9)

        assert ["greet", "acme/ann", "acme/bob"] == [s.account.value for s in everybody]
        assert [("acme/bob", 20)] == [(s.account.value, s.balance.held) for s in bob]
        assert [("acme/new", 0)] == [(s.account.value, s.balance.held) for s in new]
        assert [80] == [s.balance.left(s.limit) for s in bob]

    async def test_a_flow_is_shown_by_its_id_to_its_owner(self, store: Store) -> None:
        await store.put_budgets([Budget("flow", tokens=100)])
        [answer] = await store.submit_flows([a_new_flow(a_new_step("a", tokens=60))])

        hers = await store.accounts(Viewer(ANN), limit=9)
        his = await store.accounts(Viewer(BOB), limit=9)
        everybody = await store.accounts(Viewer(), limit=9)

        assert [answer.id] == [s.account.value for s in hers]
        assert [] == list(his)
        assert [answer.id] == [s.account.value for s in everybody]

    async def test_a_limit_is_shown_as_it_is_now(self, store: Store) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=40)
        await store.put_budgets([Budget("user", tokens=30)])
        [state] = await store.accounts(Viewer(), limit=9)
        totals = await store.ledger_totals()

        assert (30, 0) == (state.limit, state.balance.left(state.limit))
        assert [("user", "tokens", Balance(held=40))] == list(totals)

    async def test_old_windows_at_rest_are_forgotten(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.put_budgets([HUNDRED])
        await submit(store, tokens=10)
        await submit(store, tokens=10, owner=BOB)
        await self.end(store, Done("1"))
        let_pass(2 * DAY)
        now, *_ = await store.accounts(Viewer(ANN), limit=9)
        forgotten = await store.forget_accounts(before=now.account.window, limit=9)

        assert 1 == forgotten
        assert {"acme/bob": Balance(held=10)} == await balances(store)


DAY_MS = DAY // timedelta(milliseconds=1)
