"""Workers, their leases, and jobs of lost workers."""

import asyncio
from datetime import timedelta

import pytest

from backburner.domain.events import event
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.outcome import Done
from backburner.domain.jobs.transitions import Limits
from backburner.ports.store import Store
from backburner.ports.store.jobs import Settlement
from backburner.ports.store.workers import Vitals, WorkerInfo, WorkerLost
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import (
    LEASE,
    VITALS,
    LetPass,
    WithWorkers,
    find,
    settlement,
    types,
)


class RosterConformance(WithWorkers):
    """Workers, their leases, and jobs of lost workers."""

    async def test_who_is_enlisted_is_known_until_dismissed(self, store: Store) -> None:
        both = [worker.id for worker in await store.workers()]
        await store.dismiss("w_1")

        assert ["w_1", "w_2"] == both
        assert [
            WorkerInfo(
                id="w_2",
                host="here",
                pid=1,
                slots=8,
                queues=("default", "other"),
                started_at=NOON,
            )
        ] == list(await store.workers())

    async def test_a_worker_that_drains_is_marked_until_it_goes_on(
        self, store: Store
    ) -> None:
        known = await store.drain("w_1", draining=True)
        marked = [worker.draining for worker in await store.workers()]
        is_draining = await store.is_draining("w_1")
        await store.drain("w_1", draining=False)

        assert known
        assert [True, False] == marked
        assert is_draining
        assert False is await store.is_draining("w_1")
        assert not await store.drain("w_9", draining=True)
        assert await store.is_draining("w_9") is None

    async def test_a_worker_that_drains_is_marked_from_its_first_moment(
        self, store: Store
    ) -> None:
        again = WorkerInfo("w_3", "here", 1, 8, ("default",), NOON, draining=True)
        await store.enlist(again)

        assert await store.is_draining("w_3")
        assert again in await store.workers()

    async def test_a_worker_keeps_its_jobs_for_a_lease(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await self.claimed(store)
        let_pass(LEASE)

        assert [] == list(await store.orphans(lease=LEASE, limit=9))

    async def test_a_silent_worker_is_declared_dead_and_its_jobs_are_orphans(
        self, store: Store, let_pass: LetPass
    ) -> None:
        claim = await self.claimed(store)
        let_pass(LEASE + timedelta(milliseconds=1))

        orphans = await store.orphans(lease=LEASE, limit=9)

        assert [(claim.seq, claim.token, "w_1", JobState.RUNNING)] == [
            (job.seq, job.token, job.worker, job.state) for job in orphans
        ]
        assert [] == list(await store.workers())
        with pytest.raises(WorkerLost):
            await self.claim(store)

    async def test_orphans_are_told_again_until_they_are_settled(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await self.claimed(store)
        let_pass(2 * LEASE)
        job = (await store.orphans(lease=LEASE, limit=9))[0]
        again = await store.orphans(lease=LEASE, limit=9)

        change = transitions.stall(job, now=NOON, limits=Limits())
        await store.settle([Settlement(job.seq, job.token or "", change)])
        rescued = await find(store, job.id)

        assert [job] == list(again)
        assert [] == list(await store.orphans(lease=LEASE, limit=9))
        assert (JobState.QUEUED, 0, 1) == (
            rescued.state,
            rescued.attempt,
            rescued.crashes,
        )
        assert event.STALLED == (await types(store, job.id))[-1]

    async def test_a_beat_renews_the_lease(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await self.claimed(store)
        heart = store.heart()
        let_pass(LEASE)
        is_alive = await asyncio.to_thread(heart.beat, "w_1", VITALS)
        let_pass(LEASE)
        orphans = await store.orphans(lease=LEASE, limit=9)
        await asyncio.to_thread(heart.close)

        assert is_alive
        assert [] == list(orphans)
        assert ["w_1"] == [worker.id for worker in await store.workers()]

    async def test_what_a_worker_reports_with_a_beat_is_known(
        self, store: Store
    ) -> None:
        before = [worker.vitals for worker in await store.workers()]
        heart = store.heart()
        await asyncio.to_thread(heart.beat, "w_2", VITALS)
        first = [worker.vitals for worker in await store.workers()]
        unknown = Vitals(running=0, lag_ms=0, memory=None)
        await asyncio.to_thread(heart.beat, "w_2", unknown)
        second = [worker.vitals for worker in await store.workers()]
        await asyncio.to_thread(heart.close)

        assert [None, None] == before
        assert [None, VITALS] == first
        assert [None, unknown] == second

    async def test_a_worker_declared_dead_hears_so_at_its_next_beat(
        self, store: Store, let_pass: LetPass
    ) -> None:
        heart = store.heart()
        let_pass(2 * LEASE)
        await store.orphans(lease=LEASE, limit=9)
        is_alive = await asyncio.to_thread(heart.beat, "w_1", VITALS)
        await asyncio.to_thread(heart.close)

        assert not is_alive

    async def test_jobs_of_a_worker_that_left_are_orphans_at_once(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.dismiss("w_1")

        orphans = await store.orphans(lease=LEASE, limit=9)

        assert [claim.id] == [job.id for job in orphans]

    async def test_no_more_orphans_are_told_than_asked_for(self, store: Store) -> None:
        await store.submit([a_new_job() for _ in range(3)])
        await self.claim(store, 3)
        await store.dismiss("w_1")

        assert 2 == len(await store.orphans(lease=LEASE, limit=2))

    async def test_a_worker_holds_what_it_has_not_settled(self, store: Store) -> None:
        await store.submit([a_new_job() for _ in range(3)])
        first, second = await self.claim(store, 2)
        await self.claim(store, worker="w_2", token="t2")
        await store.settle([settlement(first, Done("1"))])

        assert [(second.seq, "t1")] == [(h[0], h[1]) for h in await store.held("w_1")]
