"""Claiming jobs: in order, and by one worker only."""

import asyncio
from collections import Counter

import pytest

from backburner.domain.events import event
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.outcome import HandedBack
from backburner.ports.store import Store
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerLost
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import (
    WithWorkers,
    find,
    move,
    progress,
    settlement,
    submit,
)


class ClaimConformance(WithWorkers):
    """`claim`: in order, and by one worker only."""

    async def test_a_claimed_job_is_the_workers(self, store: Store) -> None:
        job_id = await submit(store, priority=3, request_id="r_1")

        claim = (await self.claim(store, token="t9"))[0]
        job = await find(store, job_id)

        assert (job_id, "t9", 1, 0) == (
            claim.id,
            claim.token,
            claim.attempt,
            claim.generation,
        )
        assert (NOON, NOON, "r_1") == (
            claim.ready_at,
            claim.started_at,
            claim.request_id,
        )
        assert (JobState.RUNNING, "t9", "w_1") == (job.state, job.token, job.worker)
        assert (1, NOON) == (job.attempt, job.started_at)
        started = (await store.history(job_id, after=1, limit=9))[0]
        assert event.STARTED == started.type
        assert {"attempt": 1, "generation": 0, "worker": "w_1"} == started.data

    async def test_higher_priorities_come_first_then_earlier_submits(
        self, store: Store
    ) -> None:
        jobs = [a_new_job(priority=p) for p in (0, 5, 9, 5, 0)]
        await store.submit(jobs[:3])
        await store.submit(jobs[3:])

        claims = await self.claim(store, 9)

        expected = [jobs[2], jobs[1], jobs[3], jobs[0], jobs[4]]
        assert [job.id for job in expected] == [claim.id for claim in claims]

    async def test_no_more_are_taken_than_wanted(self, store: Store) -> None:
        jobs = [a_new_job() for _ in range(5)]
        await store.submit(jobs)

        first, rest = await self.claim(store, 2), await self.claim(store, 9)

        assert [j.id for j in jobs[:2]] == [c.id for c in first]
        assert [j.id for j in jobs[2:]] == [c.id for c in rest]

    async def test_each_queue_is_asked_for_its_own(self, store: Store) -> None:
        await store.submit([a_new_job() for _ in range(3)])
        other = await submit(store, queue="other")
        await submit(store, queue="third")

        claim_requests = [
            ClaimRequest("other", 2),
            ClaimRequest("default", 1),
            ClaimRequest("empty", 5),
        ]
        claims = await store.claim("w_1", "t", claim_requests, now=NOON)

        assert ["other", "default"] == [claim.queue for claim in claims]
        assert other == claims[0].id

    @pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
    async def test_what_a_queue_leaves_unused_goes_to_others(
        self, store: Store, order: int
    ) -> None:
        await store.submit([a_new_job() for _ in range(9)])
        await store.submit([a_new_job(queue="other") for _ in range(2)])

        claim_requests = [
            ClaimRequest("empty", 3, extra=9),
            ClaimRequest("other", 3, extra=0),
            ClaimRequest("default", 2, extra=9),
        ]
        claims = await store.claim("w_1", "t", claim_requests[::order], now=NOON)

        counts = Counter(claim.queue for claim in claims)
        assert {"default": 6, "other": 2} == counts

    async def test_a_queue_gets_no_more_than_its_extra(self, store: Store) -> None:
        await store.submit([a_new_job() for _ in range(9)])

        claim_requests = [ClaimRequest("default", 2, extra=1), ClaimRequest("empty", 5)]
        claims = await store.claim("w_1", "t", claim_requests, now=NOON)

        assert 3 == len(claims)

    async def test_only_queued_jobs_are_taken(self, store: Store) -> None:
        await submit(store, run_at=NOON + 1)
        cancelled = await find(store, await submit(store))
        await store.move([move(cancelled, transitions.cancel(cancelled, "", now=NOON))])
        await self.claimed(store)

        assert [] == list(await self.claim(store, 9, token="t2"))

    @pytest.mark.parametrize("limit", ["start_by", "deadline"])
    async def test_a_job_past_its_time_is_left(self, store: Store, limit: str) -> None:
        await submit(store, **{limit: NOON})
        in_time = await submit(store, **{limit: NOON + 1})

        assert [in_time] == [claim.id for claim in await self.claim(store, 9)]

    async def test_nobody_gets_a_job_that_another_has(self, store: Store) -> None:
        await store.submit([a_new_job() for _ in range(60)])

        batches = await asyncio.gather(
            *(
                self.claim(store, 7, worker=f"w_{1 + n % 2}", token=f"t{n}")
                for n in range(12)
            )
        )

        taken = [claim.seq for batch in batches for claim in batch]
        assert 60 == len(taken) == len(set(taken))

    async def test_a_worker_that_is_not_enlisted_takes_nothing(
        self, store: Store
    ) -> None:
        job_id = await submit(store)

        with pytest.raises(WorkerLost):
            await self.claim(store, worker="w_unknown")

        assert JobState.QUEUED is (await find(store, job_id)).state

    async def test_an_unknown_worker_does_not_disturb_the_others(
        self, store: Store
    ) -> None:
        await store.submit([a_new_job(), a_new_job()])

        answers = await asyncio.gather(
            self.claim(store),
            self.claim(store, worker="w_unknown", token="t2"),
            self.claim(store, worker="w_2", token="t3"),
            return_exceptions=True,
        )

        assert isinstance(answers[1], WorkerLost)
        assert [1, 1] == [len(a) for a in answers if not isinstance(a, BaseException)]

    async def test_a_job_on_its_next_attempt_starts_with_no_progress(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.report([progress(claim)])
        await store.settle([settlement(claim, HandedBack())])

        again = (await self.claim(store, token="t2"))[0]

        assert 1 == again.attempt
        assert (await find(store, claim.id)).progress is None
