"""Results of steps within handlers: stored once under the claim, with their usage."""

from typing import Any

from backburner.domain.costs.usage import RunUsage, Usage
from backburner.domain.jobs.job import Claim
from backburner.domain.jobs.outcome import Done, Failed
from backburner.domain.jobs.step import StepResult
from backburner.ports.store import Store
from backburner.testing.samples import NOON
from backburner.testing.store.acts import (
    DAY,
    NO_RETENTION,
    WithWorkers,
    find,
    retry,
    settlement,
)

CALL = Usage("m-1", 100, 20, "custom", 40, NOON, 7, "t-1")


def result(claim: Claim, key: str = "step/a", **fields: Any) -> StepResult:
    """Return the result of a step of a claim's run."""
    usual = StepResult(
        claim.seq, claim.token, key, "step", key[-1], claim.events, NOON, '"one"'
    )
    return usual._replace(**fields)


def booking(claim: Claim, *calls: Usage) -> RunUsage:
    """Return the usage of a claim's run."""
    return RunUsage(claim.seq, claim.token, claim.generation, claim.events, calls)


async def keys(store: Store, claim: Claim) -> list[str]:
    """Return the keys of a job's stored results."""
    return [step.key for step in await store.steps_of(claim.seq)]


class StepConformance(WithWorkers):
    """`StepStore`: a result belongs to its claim and does not change."""

    async def test_results_are_read_in_the_order_in_which_they_were_stored(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.save_steps([result(claim, "step/b", result='{"é": [1]}')])
        assert [True, True] == await store.save_steps(
            [result(claim, "step/a"), result(claim, "ask/c", kind="ask")]
        )
        found = await store.steps_of(claim.seq)
        assert ["step/b", "step/a", "ask/c"] == [step.key for step in found]
        first = found[0]
        assert ('{"é": [1]}', "step", "b", claim.events, NOON) == (
            *(first.result, first.kind, first.name, first.epoch, first.at),
        )

    async def test_a_key_keeps_its_first_result(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.save_steps([result(claim)])
        assert [True] == await store.save_steps([result(claim, result='"two"')])
        assert ['"one"'] == [s.result for s in await store.steps_of(claim.seq)]

    async def test_a_claim_that_is_lost_stores_nothing(self, store: Store) -> None:
        lost, held = await self.claimed(store), await self.claimed(store)
        stale = result(lost, token="another")
        assert [False, True] == await store.save_steps([stale, result(held)])
        assert not await store.steps_of(lost.seq)
        assert ["step/a"] == await keys(store, held)

    async def test_a_job_that_has_ended_stores_nothing(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.settle([settlement(claim, Done("1"))])
        assert [False] == await store.save_steps([result(claim)])
        assert [False] == await store.save_steps([result(claim)], [booking(claim)])
        assert not await store.steps_of(claim.seq)

    async def test_usage_is_recorded_with_the_result_and_once(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        used = [booking(claim, CALL)]
        assert [True] == await store.save_steps([result(claim)], used)
        assert [True] == await store.save_steps([result(claim)], used)
        await store.settle([settlement(claim, Done("1"), usage=(CALL,))])
        assert 120 == (await store.spent([claim.seq]))[claim.seq].tokens

    async def test_usage_of_a_lost_claim_is_recorded_though_its_result_is_not(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.settle([settlement(claim, Failed("BAD", "no", retryable=False))])
        assert [False] == await store.save_steps(
            [result(claim)], [booking(claim, CALL)]
        )
        assert 120 == (await store.spent([claim.seq]))[claim.seq].tokens

    async def test_results_outlive_a_retry(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.save_steps([result(claim)])
        await store.settle([settlement(claim, Failed("BAD", "no", retryable=False))])
        await store.reopen([retry(await find(store, claim.id))])
        assert ["step/a"] == await keys(store, claim)

    async def test_a_fresh_retry_forgets_all_results(self, store: Store) -> None:
        claim, other = await self.claimed(store), await self.claimed(store)
        await store.save_steps([result(claim), result(claim, "step/b"), result(other)])
        await store.settle([settlement(claim, Failed("BAD", "no", retryable=False))])
        dead = retry(await find(store, claim.id))
        assert [True] == await store.reopen([dead], fresh=True)
        assert not await store.steps_of(claim.seq)
        assert ["step/a"] == await keys(store, other)

    async def test_a_fresh_retry_that_is_refused_forgets_nothing(
        self, store: Store
    ) -> None:
        claim, other = await self.claimed(store), await self.claimed(store)
        await store.save_steps([result(claim), result(other)])
        for ended in (claim, other):
            lost = Failed("BAD", "no", retryable=False)
            await store.settle([settlement(ended, lost)])
        dead = retry(await find(store, claim.id))
        stale = dead._replace(generation=dead.generation + 1)
        fine = retry(await find(store, other.id))
        assert [False, True] == await store.reopen([stale, fine], fresh=True)
        assert ["step/a"] == await keys(store, claim)
        assert not await store.steps_of(other.seq)

    async def test_one_result_can_be_forgotten_by_the_holder(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.save_steps([result(claim), result(claim, "step/b")])
        assert not await store.forget_step(claim.seq, "another", "step/a")
        assert await store.forget_step(claim.seq, claim.token, "step/a")
        assert ["step/b"] == await keys(store, claim)

    async def test_a_step_that_was_begun_is_filled_by_its_result(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        begun = result(claim, result="", expected=9, is_open=True)
        assert [True] == await store.save_steps([begun])
        [row] = await store.steps_of(claim.seq)
        assert (0, True, 0, 9) == (row.size, row.is_open, row.doubts, row.expected)
        assert None is row.duration_ms
        await store.save_steps([result(claim, duration_ms=850)])
        [row] = await store.steps_of(claim.seq)
        assert ('"one"', False, 0) == (row.result, row.is_open, row.doubts)
        assert 850 == row.duration_ms
        await store.save_steps([begun])
        assert [row] == await store.steps_of(claim.seq)

    async def test_a_step_that_an_earlier_run_began_is_counted_as_in_doubt(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        begun = result(claim, result="", is_open=True)
        await store.save_steps([begun])
        await store.save_steps([begun._replace(epoch=claim.events + 3)])
        await store.save_steps([result(claim, epoch=claim.events + 6)])
        [row] = await store.steps_of(claim.seq)
        assert ('"one"', 2, claim.events + 6) == (row.result, row.doubts, row.epoch)

    async def test_a_step_that_did_not_happen_is_withdrawn_by_the_holder(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        begun = result(claim, result="", is_open=True)
        await store.save_steps([begun, result(claim, "step/b")])
        assert not await store.withdraw_step(claim.seq, "another", "step/a")
        assert await store.withdraw_step(claim.seq, claim.token, "step/a")
        assert await store.withdraw_step(claim.seq, claim.token, "step/b")
        assert ["step/b"] == await keys(store, claim)
        await store.save_steps([begun])
        await store.save_steps([begun._replace(epoch=claim.events + 1)])
        await store.withdraw_step(claim.seq, claim.token, "step/a")
        await store.save_steps([begun._replace(epoch=claim.events + 2)])
        rows = {row.key: row for row in await store.steps_of(claim.seq)}
        assert 1 == rows["step/a"].doubts

    async def test_results_go_with_their_job(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.save_steps([result(claim)])
        await store.settle([settlement(claim, Done("1"))])
        await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=10)
        assert not await store.find([claim.id])
        assert not await store.steps_of(claim.seq)
