"""Limits of queues: concurrency, rate and pauses."""

import asyncio
from datetime import timedelta

import pytest

from backburner.domain.events.event import Event
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.outcome import Done
from backburner.domain.queues.queue import Queue, QueueState, Rate, Throttling
from backburner.ports.store import Store
from backburner.ports.store.events import Topic
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.maintenance import Retention
from backburner.testing.samples import ANN, NOON, a_new_job
from backburner.testing.store.acts import (
    DAY,
    LetPass,
    WithWorkers,
    find,
    settlement,
    submit,
)

MINUTE = timedelta(minutes=1)
THREE_A_MINUTE = Queue("default", rate=Rate(3, per=MINUTE))


class QueueConformance(WithWorkers):
    """`declare`, `pause`, and their effect on claims."""

    async def test_a_queue_without_a_policy_is_not_listed(self, store: Store) -> None:
        await submit(store)

        assert [] == list(await store.queues())

    async def test_what_is_declared_is_listed_by_name(self, store: Store) -> None:
        slow = Queue("slow", concurrency=2, per_worker=1)
        await store.declare([slow, THREE_A_MINUTE])

        assert [
            QueueState("default", rate=Rate(3, per=MINUTE)),
            QueueState("slow", concurrency=2, per_worker=1),
        ] == list(await store.queues())

    async def test_what_is_declared_last_holds(self, store: Store) -> None:
        await store.declare([Queue("default", concurrency=1)])
        await store.declare([Queue("default")])
        await store.submit([a_new_job() for _ in range(3)])

        assert 3 == len(await self.claim(store, 9))

    async def test_nothing_is_claimed_of_a_paused_queue(self, store: Store) -> None:
        other = await submit(store, queue="other")
        job_id = await submit(store)
        await store.pause("default", paused=True)

        claim_requests = [ClaimRequest("default", 9), ClaimRequest("other", 9)]
        claims = await store.claim("w_1", "t1", claim_requests, now=NOON)

        assert [other] == [claim.id for claim in claims]
        assert JobState.QUEUED is (await find(store, job_id)).state
        assert [QueueState("default", paused=True)] == list(await store.queues())

    async def test_what_runs_when_its_queue_is_paused_is_settled(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.pause("default", paused=True)

        [applied] = await store.settle([settlement(claim, Done("1"))])

        assert applied is not None
        assert JobState.SUCCEEDED is (await find(store, claim.id)).state

    async def test_a_queue_that_is_resumed_goes_on(self, store: Store) -> None:
        job_id = await submit(store)
        await store.pause("default", paused=True)
        await store.pause("default", paused=True)
        paused = await self.claim(store)
        await store.pause("default", paused=False)

        assert [] == list(paused)
        assert [job_id] == [claim.id for claim in await self.claim(store)]

    async def test_a_pause_outlives_a_new_policy(self, store: Store) -> None:
        await submit(store)
        await store.pause("default", paused=True)
        await store.declare([Queue("default", concurrency=5)])

        assert [] == list(await self.claim(store))
        assert [QueueState("default", paused=True, concurrency=5)] == list(
            await store.queues()
        )

    async def test_no_more_run_at_once_than_the_queue_allows(
        self, store: Store
    ) -> None:
        await store.declare([Queue("default", concurrency=3)])
        await store.submit([a_new_job() for _ in range(9)])

        first = await self.claim(store, 2)
        second = await self.claim(store, 9, worker="w_2", token="t2")
        none = await self.claim(store, 9, token="t3")
        await store.settle([settlement(first[0], Done("1"))])
        freed = await self.claim(store, 9, token="t4")

        assert [2, 1, 0, 1] == [len(c) for c in (first, second, none, freed)]

    async def test_jobs_of_other_queues_do_not_count(self, store: Store) -> None:
        await store.declare([Queue("default", concurrency=1)])
        await submit(store, queue="other")
        await store.claim("w_1", "t1", [ClaimRequest("other", 1)], now=NOON)
        await submit(store)

        assert 1 == len(await self.claim(store, token="t2"))

    async def test_workers_that_claim_at_once_stay_within_the_limits(
        self, store: Store
    ) -> None:
        await store.declare([Queue("default", concurrency=7, rate=Rate(9, per=MINUTE))])
        await store.submit([a_new_job() for _ in range(60)])

        batches = await asyncio.gather(
            *(
                self.claim(store, 3, worker=f"w_{1 + n % 2}", token=f"t{n}")
                for n in range(12)
            )
        )

        assert 7 == sum(map(len, batches))

    async def test_no_more_start_in_a_window_than_the_rate_allows(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare([THREE_A_MINUTE])
        await store.submit([a_new_job() for _ in range(9)])

        first = await self.claim(store, 2)
        second = await self.claim(store, 9, worker="w_2", token="t2")
        none = await self.claim(store, 9, token="t3")
        let_pass(MINUTE)
        third = await self.claim_now(store, 9, "t4", MINUTE)

        assert [2, 1, 0, 3] == [len(c) for c in (first, second, none, third)]

    async def test_a_job_that_ends_does_not_give_its_start_back(
        self, store: Store
    ) -> None:
        await store.declare([THREE_A_MINUTE])
        await store.submit([a_new_job() for _ in range(9)])
        claims = await self.claim(store, 3)

        await store.settle([settlement(claim, Done("1")) for claim in claims])

        assert [] == list(await self.claim(store, 9, token="t2"))

    async def test_a_closed_window_is_seen_until_it_opens(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare([THREE_A_MINUTE])
        await store.submit([a_new_job() for _ in range(9)])
        [before] = await store.queues()
        await self.claim(store, 9)
        [closed] = await store.queues()
        let_pass(MINUTE)
        [after] = await store.queues()

        minute = MINUTE // timedelta(milliseconds=1)
        assert (None, None) == (before.limited_until, after.limited_until)
        assert closed.limited_until is not None
        assert closed.limited_until % minute == 0
        assert closed.opens_in is not None
        assert 0 < closed.opens_in <= minute

    async def test_a_closed_window_is_told_once(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare([THREE_A_MINUTE])
        await store.submit([a_new_job() for _ in range(9)])
        await self.claim(store, 9)
        await self.claim(store, 9, token="t2")
        [state] = await store.queues()
        told = await store.throttlings()
        again = await store.throttlings()
        let_pass(MINUTE)
        await self.claim_now(store, 9, "t3", MINUTE)
        next_one = await store.throttlings()

        assert 1 == state.untold
        assert [Throttling("default", 1, state.limited_until or 0)] == list(told)
        assert [] == list(again)
        assert [1] == [throttling.windows for throttling in next_one]

    async def test_what_was_told_of_a_window_is_deleted_with_the_oldest_jobs(
        self, store: Store
    ) -> None:
        await store.declare([THREE_A_MINUTE])
        await store.submit([a_new_job() for _ in range(9)])
        await self.claim(store, 9)
        await self.claim(store, 9, token="t2")
        await store.throttlings()
        [told] = await self.told_of_queues(store)
        keep = Retention(timedelta(), failed=timedelta(days=1), cancelled=timedelta())
        await store.prune(keep=keep, now=told.at + DAY - 1, limit=9)
        young = await self.told_of_queues(store)
        await store.prune(keep=keep, now=told.at + DAY, limit=9)

        assert [told] == young
        assert [] == await self.told_of_queues(store)

    async def told_of_queues(self, store: Store) -> list[Event]:
        """Return the events of queues."""
        topic = Topic(queues=True)
        found = (await store.stream(ANN, after=0, limit=99, topic=topic)).events
        return [event for event in found if event.type.startswith("queue.")]

    async def test_a_window_that_is_full_while_nothing_waits_is_not_told(
        self, store: Store
    ) -> None:
        await store.declare([THREE_A_MINUTE])
        await store.submit([a_new_job() for _ in range(3)])

        await self.claim(store, 9)

        assert [] == list(await store.throttlings())

    @pytest.mark.parametrize("name", ["no 'quotes'", "Ünïcode", "a/b"])
    async def test_any_printable_name_will_do(self, store: Store, name: str) -> None:
        await store.declare([Queue(name, concurrency=1)])
        await store.submit([a_new_job(queue=name) for _ in range(2)])

        claims = await store.claim("w_1", "t1", [ClaimRequest(name, 2)], now=NOON)

        assert [name] == [claim.queue for claim in claims]

    async def claim_now(
        self, store: Store, limit: int, token: str, later: timedelta
    ) -> list[object]:
        """Claim jobs from the default queue some time after noon."""
        now = NOON + later // timedelta(milliseconds=1)
        return list(
            await store.claim("w_1", token, [ClaimRequest("default", limit)], now=now)
        )
