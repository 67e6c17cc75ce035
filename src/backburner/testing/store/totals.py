"""The numbers of ended jobs by queue."""

import pytest

from backburner.domain.jobs import transitions
from backburner.domain.jobs.outcome import Done, Failed, HandedBack
from backburner.domain.queues.queue import Totals
from backburner.ports.store import Store
from backburner.ports.store.jobs import ClaimRequest
from backburner.testing.samples import NOON, a_new_flow, a_new_job, a_new_step
from backburner.testing.store.acts import (
    DAY,
    NO_RETENTION,
    WithWorkers,
    find,
    move,
    retry,
    settlement,
    submit,
)


class TotalsConformance(WithWorkers):
    """`totals` and `compact_totals`."""

    async def test_where_nothing_ended_nothing_is_counted(self, store: Store) -> None:
        await submit(store)

        assert {} == dict(await store.totals())

    async def test_ends_are_counted_by_queue_and_kind(self, store: Store) -> None:
        await submit(store, queue="loud")
        await store.submit([a_new_job() for _ in range(2)])
        claim_requests = [ClaimRequest("default", 2), ClaimRequest("loud", 1)]
        claims = await store.claim("w_1", "t1", claim_requests, now=NOON)
        await store.settle([settlement(claim, Done("1")) for claim in claims])
        await self.failed(store)

        assert {
            "default": Totals(completed=2, failed=1),
            "loud": Totals(completed=1),
        } == dict(await store.totals())

    async def test_what_goes_on_is_not_counted(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.settle([settlement(claim, HandedBack())])

        assert {} == dict(await store.totals())

    async def test_a_settlement_that_finds_no_job_counts_nothing(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.settle([settlement(claim, Done("1"))])
        await store.settle([settlement(claim, Done("2"))])

        assert {"default": Totals(completed=1)} == dict(await store.totals())

    async def test_one_that_waited_is_counted_when_it_ends(self, store: Store) -> None:
        jobs = [await find(store, await submit(store)) for _ in range(2)]
        cancelled = transitions.cancel(jobs[0], "asked", now=NOON)
        expired = transitions.expire(jobs[1], now=NOON)
        await store.move([move(jobs[0], cancelled), move(jobs[1], expired)])

        assert {"default": Totals(failed=1, cancelled=1)} == dict(await store.totals())

    async def test_a_retried_job_is_counted_at_each_end(self, store: Store) -> None:
        job = await self.failed(store)
        await store.move([retry(job)])
        [claim] = await self.claim(store, 1)
        await store.settle([settlement(claim, Done("1"))])

        assert {"default": Totals(completed=1, failed=1)} == dict(await store.totals())

    async def test_steps_that_are_given_up_or_cancelled_are_counted(
        self, store: Store
    ) -> None:
        steps = (a_new_step("a"), a_new_step("b", "a", queue="loud"))
        await store.submit_flows([a_new_flow(*steps)])
        [claim] = await self.claim(store, 1)
        failed = Failed("BAD", "no", retryable=False)
        await store.settle([settlement(claim, failed)])

        assert {
            "default": Totals(failed=1),
            "loud": Totals(cancelled=1),
        } == dict(await store.totals())

    async def test_totals_outlive_the_jobs_that_they_count(self, store: Store) -> None:
        await self.failed(store)
        assert await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)

        assert {"default": Totals(failed=1)} == dict(await store.totals())

    @pytest.mark.parametrize("limit", [3, 100])
    async def test_adding_up_changes_no_total(self, store: Store, limit: int) -> None:
        await self.failed(store)
        for _ in range(5):
            claim = await self.claimed(store)
            await store.settle([settlement(claim, Done("1"))])

        fewer = sum([await store.compact_totals(limit=limit) for _ in range(6)])

        assert 4 == fewer
        assert {"default": Totals(5, failed=1)} == dict(await store.totals())
