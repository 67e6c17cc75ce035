"""Old flows and batches are deleted with everything that belongs to them."""

from datetime import timedelta

import pytest

from backburner.domain.errors import BatchNotFound
from backburner.domain.groups.batch import Members
from backburner.domain.groups.flow import Edge
from backburner.domain.jobs import transitions
from backburner.ports.store import Store
from backburner.ports.store.events import Topic
from backburner.ports.store.maintenance import JobFilter, Retention
from backburner.testing.samples import (
    ANN,
    NOON,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import DAY, NO_RETENTION, SECOND, WEEK, find
from backburner.testing.store.linked import LATER, Course, Hands, WithFlows

A_WEEK = WEEK // timedelta(milliseconds=1)


class ForgetConformance(WithFlows):
    """`prune`: steps with their flow, members with their batch."""

    async def test_a_flow_goes_with_its_steps_when_its_time_is_over(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("b", "a"))
        other = await self.begin(hands, a_new_step("a"), a_new_step("b", "a"))
        await course.end("a")
        early = await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)
        await course.end("b")
        await other.end("a")
        await other.fail("b")
        flow, jobs = await course.flow(), await course.jobs()
        keep = Retention(succeeded=WEEK, failed=2 * WEEK, cancelled=WEEK)

        young = await store.prune(keep=keep, now=NOON + A_WEEK, limit=9)
        old = await store.prune(keep=keep, now=NOON + A_WEEK + SECOND, limit=9)

        assert [] == list(early), "a step is kept for as long as its flow is"
        assert [] == list(young)
        assert {job.id for job in jobs.values()} == {*old}
        assert [] == list(await store.find_flows([flow.id]))
        topic = Topic(flow=flow.seq)
        assert [] == list(
            (await store.stream(ANN, after=0, limit=9, topic=topic)).events
        )
        assert [] == list(await store.history(jobs["a"].id, after=0, limit=9))
        assert 2 == len(await other.jobs())

    async def test_a_flow_is_kept_while_its_key_is_good(
        self, store: Store, hands: Hands
    ) -> None:
        await self.begin(hands, idempotency_key="k", body_hash="h")
        course = await self.begin(
            hands, a_new_step("a"), idempotency_key="l", body_hash="h"
        )
        await course.end("a")

        early = await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)
        due = await store.prune(keep=NO_RETENTION, now=NOON + DAY + 1, limit=9)

        assert (0, 1) == (len(early), len(due))

    async def test_no_more_is_forgotten_at_once_than_asked_for(
        self, store: Store, hands: Hands
    ) -> None:
        names = "abcd"
        for _ in range(5):
            course = await self.begin(hands, *(a_new_step(name) for name in names))
            await course.end(*names)
        found = []
        while gone := await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=6):
            found.append(len(gone))

        assert 20 == sum(found)
        assert [8, 8, 4] == found, "flows are deleted whole, until there are enough"

    async def test_many_steps_are_forgotten_at_once(
        self, store: Store, hands: Hands
    ) -> None:
        names = [f"s_{n}" for n in range(1000)]
        wide = [a_new_step(name, run_at=NOON + DAY) for name in names]
        join = a_new_step("join", *(Edge(name) for name in names))
        course = await self.begin(hands, *wide, join)
        ended = transitions.cancel_all("no", now=NOON + SECOND)
        await store.cancel_flow((await course.flow()).seq, ended)

        gone = await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=500)
        assert 1001 == len(gone)

    async def test_members_are_kept_for_as_long_as_their_batch(
        self, store: Store, hands: Hands
    ) -> None:
        job, flow = a_new_job(), a_new_flow(a_new_step("a"))
        batch = await self.open(hands, Members([job], [flow]))
        await hands.end(job.id)
        await Course(hands, flow.id).end("a")
        open_ = await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)
        await batch.finish()
        found = await batch.batch()
        keep = Retention(timedelta(), WEEK, timedelta())
        young = await store.prune(keep=keep, now=LATER + A_WEEK - 1, limit=9)
        counted = await batch.counts()
        old = await store.prune(keep=keep, now=LATER + A_WEEK, limit=9)

        assert ([], []) == (list(open_), list(young))
        assert 2 == counted.total
        assert 2 == len(old)
        assert [] == list(await store.find_batches([found.id]))
        assert [] == list(await store.find_flows([flow.id]))
        topic = Topic(batch=found.seq)
        assert [] == list(
            (await store.stream(ANN, after=0, limit=9, topic=topic)).events
        )

    async def test_whoever_still_knows_a_forgotten_batch_is_told_or_does_nothing(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job()
        batch = await self.open(hands, Members([job]))
        await hands.end(job.id)
        await batch.finish()
        seq = await batch.seq()
        await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)

        with pytest.raises(BatchNotFound):
            await store.fill_batch(seq, Members([a_new_job()]), seal=False)

        assert not await store.finish_batch(seq, lambda *_: [a_new_job()], now=LATER)
        assert not await store.tell_batch(seq, now=LATER)
        assert [] == list(await store.jobs(JobFilter(), before=None, limit=9))

    async def test_the_number_of_a_flow_or_batch_is_never_given_twice(
        self, store: Store, hands: Hands
    ) -> None:
        flow, batch = await self.begin(hands), await self.open(hands, Members())
        await batch.finish()
        numbers = ((await flow.flow()).seq, await batch.seq())
        await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)

        flow, batch = await self.begin(hands), await self.open(hands, Members())

        assert numbers[0] < (await flow.flow()).seq
        assert numbers[1] < await batch.seq()

    async def test_a_delivery_outlives_what_it_tells_of(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(callback='{"url":"x"}')
        await store.submit([job])
        await hands.end(job.id)

        gone = await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)

        assert [job.id] == list(gone)
        [told] = (await store.stream(ANN, after=0, limit=9)).events
        assert told.subject == (await find(store, told.subject)).id
