"""Callbacks: one delivery for each end, in the transaction of that end."""

import pytest

from backburner.domain.groups.batch import Members
from backburner.domain.groups.flow import Edge
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.outcome import Cancel, Failed, HandedBack
from backburner.domain.webhooks import delivery
from backburner.ports.store import Store
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.samples import ANN, BOB, NOON, a_new_flow, a_new_job, a_new_step
from backburner.testing.store.acts import (
    DAY,
    SECOND,
    find,
    move,
    retry,
    types,
)
from backburner.testing.store.linked import (
    BAD,
    CALLBACK,
    Course,
    Hands,
    WithFlows,
    adding,
    told_of,
)


class CallbackConformance(WithFlows):
    """Every end of a job with a callback has one delivery per generation."""

    async def test_a_delivery_is_a_job_of_whoever_asked_for_it(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(
            owner=BOB, callback=CALLBACK, request_id="r_1", traceparent="t_1"
        )
        await store.submit([job])
        await hands.end(job.id)

        [listed] = await store.jobs(
            JobFilter(queue=delivery.QUEUE), before=None, limit=9
        )
        told = await find(store, listed.id)

        assert (JobState.QUEUED, BOB, delivery.CAPABILITY, "r_1", "t_1") == (
            told.state,
            told.owner,
            told.capability,
            told.request_id,
            told.traceparent,
        )
        assert '"https://example.com/told"' in told.input
        assert [("job.succeeded", 0)] == await told_of(store, job.id)
        assert ["job.queued"] == await types(store, told.id)

    async def test_only_an_end_is_told_of_and_only_to_who_asked(
        self, store: Store, hands: Hands
    ) -> None:
        asked, other = a_new_job(callback=CALLBACK), a_new_job()
        await store.submit([asked, other])
        await hands.end(asked.id, outcome=HandedBack())
        await hands.end(asked.id, outcome=Failed("BUSY", "later"))
        await hands.end(other.id)

        assert [] == await told_of(store, asked.id)
        assert [] == await told_of(store, other.id)

    @pytest.mark.parametrize("how", ["fails", "is ended", "is cancelled", "expires"])
    async def test_every_end_of_a_job_is_told_of_once(
        self, store: Store, hands: Hands, how: str
    ) -> None:
        new = a_new_job(callback=CALLBACK, start_by=NOON + 1)
        await store.submit([new])
        if how == "fails":
            await hands.end(new.id, outcome=BAD)
        elif how == "is ended":
            await hands.end(new.id, outcome=Cancel("no"))
        else:
            job = await find(store, new.id)
            change = transitions.expire(job, now=NOON + 1)
            if how == "is cancelled":
                change = transitions.cancel(job, "no", now=NOON + 1)
            asked = move(job, change)
            await store.move([asked, asked])

        state = "cancelled" if how in {"is ended", "is cancelled"} else "failed"
        assert [(f"job.{state}", 0)] == await told_of(store, new.id)

    async def test_a_settlement_that_does_not_hold_tells_nobody(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(callback=CALLBACK)
        await store.submit([job])
        once = await hands.end_in_vain(job.id)
        early = await told_of(store, job.id)
        await store.settle([once, once])

        assert [] == early
        assert [("job.failed", 0)] == await told_of(store, job.id)

    async def test_each_generation_of_a_job_is_told_of(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(callback=CALLBACK)
        await store.submit([job])
        await hands.end_thrice(job.id)

        assert [("job.failed", 0), ("job.failed", 1), ("job.succeeded", 2)] == (
            await told_of(store, job.id)
        )

    async def test_a_flow_is_told_of_at_its_end_and_each_step_at_its_own(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("a", callback=CALLBACK),
            a_new_step("b", "a", callback=CALLBACK),
            a_new_step("c", "b", callback=CALLBACK),
            a_new_step("d", Edge("c", continues=True)),
            callback=CALLBACK,
        )
        await course.end("a")
        await course.fail("b")
        flow, jobs = await course.flow(), await course.jobs()
        early = await told_of(store, flow.id)
        await course.end("d")

        told = {name: await told_of(store, job.id) for name, job in jobs.items()}
        assert {
            "a": [("job.succeeded", 0)],
            "b": [("job.failed", 0)],
            "c": [("job.cancelled", 0)],
            "d": [],
        } == told
        assert [] == early
        assert [("flow.failed", 0)] == await told_of(store, flow.id)

    async def test_each_generation_of_a_flow_and_of_what_it_gave_up_is_told_of(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("a"),
            a_new_step("b", "a", callback=CALLBACK),
            callback=CALLBACK,
        )
        await course.fail("a")
        await course.retry("a")
        await course.end("a")
        await course.end("b")

        flow, job = await course.flow(), (await course.jobs())["b"]
        assert [("flow.failed", 0), ("flow.succeeded", 1)] == (
            await told_of(store, flow.id)
        )
        assert [("job.cancelled", 0), ("job.succeeded", 1)] == (
            await told_of(store, job.id)
        )

    async def test_what_is_cancelled_as_a_whole_is_told_of_one_by_one(
        self, store: Store, hands: Hands
    ) -> None:
        new = a_new_flow(
            a_new_step("done", callback=CALLBACK),
            a_new_step("running", callback=CALLBACK),
            a_new_step("blocked", "running", callback=CALLBACK),
            callback=CALLBACK,
        )
        member = a_new_job(callback=CALLBACK, run_at=NOON + DAY)
        batch = await self.open(hands, Members([member], [new]), callback=CALLBACK)
        course = Course(hands, new.id)
        await course.end("done")
        await batch.cancel()
        await batch.cancel()
        early = await told_of(store, (await batch.batch()).id)
        await batch.finish()
        await batch.finish()

        jobs = await course.jobs()
        told = {name: await told_of(store, job.id) for name, job in jobs.items()}
        assert {
            "done": [("job.succeeded", 0)],
            "running": [("job.cancelled", 0)],
            "blocked": [("job.cancelled", 0)],
        } == told
        assert [("job.cancelled", 0)] == await told_of(store, member.id)
        assert [("flow.cancelled", 0)] == await told_of(store, new.id)
        assert [] == early
        assert [("batch.finished", 0)] == (
            await told_of(store, (await batch.batch()).id)
        )

    async def test_a_flow_without_steps_is_told_of(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, callback=CALLBACK)

        assert [("flow.succeeded", 0)] == (
            await told_of(store, (await course.flow()).id)
        )

    async def test_a_step_that_is_given_up_as_it_is_added_is_told_of(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("bad"), a_new_step("a"))
        await course.fail("bad")
        added = (
            a_new_step("b", "a", "bad", callback=CALLBACK),
            a_new_step("c", "b", callback=CALLBACK),
        )
        await course.end("a", body=adding((await course.flow()).seq, *added))

        for step in added:
            assert [("job.cancelled", 0)] == await told_of(store, step.job.id)

    async def test_each_generation_of_a_batch_is_told_of(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job()
        batch = await self.open(hands, Members([job]), callback=CALLBACK)
        await hands.end(job.id, outcome=BAD)
        await batch.finish()
        await store.reopen([retry(await find(store, job.id))])
        await hands.end(job.id)
        await batch.finish(now=NOON + 9 * SECOND)

        told = await told_of(store, (await batch.batch()).id)
        assert [("batch.finished", 0), ("batch.finished", 1)] == told
        assert {ANN} == {
            job.owner
            for job in await store.jobs(
                JobFilter(queue=delivery.QUEUE), before=None, limit=9
            )
        }
