"""Retries by hand of jobs that others depend on."""

import asyncio

from backburner.domain.events import event
from backburner.domain.groups.batch import BatchState, Members
from backburner.domain.groups.flow import Edge, FlowState
from backburner.domain.jobs.job import JobState
from backburner.ports.store import Store
from backburner.testing.samples import NOON, a_new_flow, a_new_job, a_new_step
from backburner.testing.store.acts import DAY, find, retry, types
from backburner.testing.store.linked import (
    BAD,
    GOOD,
    Course,
    Hands,
    WithFlows,
    adding,
)

BLOCKED, QUEUED = JobState.BLOCKED, JobState.QUEUED
FAILED, CANCELLED = JobState.FAILED, JobState.CANCELLED


class ReopenConformance(WithFlows):
    """`reopen`: steps wait again, flows and batches end once per generation."""

    async def test_what_was_given_up_waits_again_for_the_step_that_failed(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("a"),
            a_new_step("b", "a", start_by=NOON + DAY, deadline=NOON + DAY),
            a_new_step("c", "b"),
        )
        await course.fail("a")

        held = await course.retry("a")
        jobs = await course.jobs()
        told = (await store.history(jobs["c"].id, after=2, limit=9))[0]

        assert [True] == list(held)
        assert {"a": QUEUED, "b": BLOCKED, "c": BLOCKED} == await course.states()
        waiting = jobs["b"]
        assert (1, None, None, None, None) == (
            waiting.generation,
            waiting.error,
            waiting.finished_at,
            waiting.start_by,
            waiting.deadline,
        )
        assert (event.BLOCKED, {"generation": 1}) == (told.type, told.data)

    async def test_a_flow_that_was_over_ends_once_more(self, hands: Hands) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("b", "a"))
        await course.fail("a")
        over = await course.flow()
        await course.retry("a")
        opened = await course.flow()
        await course.end("a")
        await course.fail("b")
        await course.retry("b")
        await course.end("b")
        told = await course.events()

        assert (FlowState.FAILED, 0) == (over.state, over.generation)
        assert (FlowState.RUNNING, 1, None) == (
            opened.state,
            opened.generation,
            opened.finished_at,
        )
        flow = await course.flow()
        assert (FlowState.SUCCEEDED, 2, 6) == (flow.state, flow.generation, flow.events)
        assert [
            (1, event.FLOW_STARTED, {}),
            (2, "flow.failed", {}),
            (3, event.FLOW_REOPENED, {"generation": 1}),
            (4, "flow.failed", {}),
            (5, event.FLOW_REOPENED, {"generation": 2}),
            (6, "flow.succeeded", {}),
        ] == [(e.n, e.type, e.data) for e in told]

    async def test_a_flow_that_still_runs_goes_on_in_its_generation(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b", "a"), a_new_step("slow")
        )
        await course.fail("a")
        await course.retry("a")
        flow = await course.flow()
        await course.end("a", "slow")
        await course.end("b")

        assert (FlowState.RUNNING, 0, 1) == (flow.state, flow.generation, flow.events)
        assert [1, 2] == [e.n for e in await course.events()]

    async def test_a_step_stays_given_up_until_all_that_it_needs_may_succeed(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b"), a_new_step("c", "a", "b")
        )
        await course.fail("a", "b")
        await course.retry("a")
        one = (await course.states())["c"]
        await course.end("a")
        still = (await course.states())["c"]
        await course.retry("b")
        both = (await course.states())["c"]
        await course.end("b")
        released = (await course.states())["c"]
        await course.end("c")

        assert [CANCELLED, CANCELLED, BLOCKED, QUEUED] == [one, still, both, released]
        flow = await course.flow()
        assert (FlowState.SUCCEEDED, 2) == (flow.state, flow.generation)

    async def test_prerequisites_that_are_retried_in_one_call_are_all_waited_for(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b"), a_new_step("c", "a", "b")
        )
        await course.fail("a", "b")
        held = await course.retry("a", "b")
        await course.end("b")
        waiting = (await course.states())["c"]
        await course.end("a")

        assert [True, True] == list(held)
        assert (BLOCKED, QUEUED) == (waiting, (await course.states())["c"])
        assert 1 == (await course.flow()).generation

    async def test_a_step_that_was_cancelled_by_hand_stays_so(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b", "a"), a_new_step("c", "b")
        )
        await course.cancel("b")
        await course.fail("a")
        await course.retry("a")

        assert {"a": QUEUED, "b": CANCELLED, "c": CANCELLED} == await course.states()

    async def test_a_step_waits_once_more_for_one_that_it_had_gone_on_without(
        self, hands: Hands
    ) -> None:
        lax = Edge("a", continues=True)
        course = await self.begin(
            hands,
            a_new_step("a"),
            a_new_step("given up", "a"),
            a_new_step("slow"),
            a_new_step("b", lax, "slow"),
            a_new_step("c", Edge("given up", continues=True), "slow"),
            a_new_step("ran", lax),
        )
        await course.fail("a")
        await course.end("ran")
        await course.retry("a")
        await course.end("a")
        early = await course.states()
        await course.end("slow")
        late = await course.states()
        await course.end("given up")

        assert (BLOCKED, BLOCKED) == (early["b"], early["c"]), (
            "a prerequisite that ends twice counts once"
        )
        assert (QUEUED, BLOCKED) == (late["b"], late["c"])
        assert QUEUED is (await course.states())["c"]
        assert JobState.SUCCEEDED is late["ran"], "what ran has run"

    async def test_a_step_waits_again_for_one_that_was_put_before_it(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("bad"), a_new_step("a"), a_new_step("join", "a")
        )
        added = a_new_step("b", "bad", before=["join"])
        await course.end("a", body=adding((await course.flow()).seq, added))
        await course.fail("bad")
        given_up = await course.states()
        await course.retry("bad")
        waiting = await course.states()
        for name in ("bad", "b", "join"):
            await course.end(name)

        assert (CANCELLED, CANCELLED) == (given_up["b"], given_up["join"])
        assert (BLOCKED, BLOCKED) == (waiting["b"], waiting["join"])
        assert FlowState.SUCCEEDED is (await course.flow()).state

    async def test_a_step_that_expired_while_it_waited_waits_retry(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b", "a"), a_new_step("c", "b")
        )
        await course.expire("b")
        held = await course.retry("b")
        waiting = await course.states()
        await course.end("a")
        released = await course.states()

        assert [True] == list(held)
        assert (BLOCKED, BLOCKED) == (waiting["b"], waiting["c"]), (
            "a retry does not run a step before what it needs"
        )
        assert QUEUED is released["b"]
        job = (await course.jobs())["b"]
        assert [event.BLOCKED, event.FAILED, event.BLOCKED, event.QUEUED] == (
            await types(store, job.id)
        )

    async def test_a_step_cannot_be_retried_without_what_it_needs(
        self, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("b", "a"))
        await course.expire("b")
        await course.fail("a")
        alone = await course.retry("b")
        left = await course.states()
        together = await course.retry("a", "b")

        assert [False] == list(alone)
        assert {"a": FAILED, "b": FAILED} == left
        assert [True, True] == list(together)
        assert {"a": QUEUED, "b": BLOCKED} == await course.states()

    async def test_of_two_retries_of_a_step_one_holds(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("b", "a"))
        await course.fail("a")
        asked = retry((await course.jobs())["a"])

        held = await asyncio.gather(*(store.reopen([asked]) for _ in range(5)))
        together = await store.reopen([asked, asked])

        assert [False] * 4 + [True] == sorted(held for (held,) in held)
        assert [False, False] == list(together)
        flow, jobs = await course.flow(), await course.jobs()
        assert (1, 3) == (flow.generation, flow.events)
        assert [(QUEUED, 1), (BLOCKED, 1)] == [
            (job.state, job.generation) for job in jobs.values()
        ]

    async def test_a_job_of_its_own_is_retried_as_ever(self, store: Store) -> None:
        job = await self.failed(store)

        held = await store.reopen([retry(job), retry(job)])

        assert [True, False] == list(held)
        assert (QUEUED, 1) == (
            (await find(store, job.id)).state,
            (await find(store, job.id)).generation,
        )
        assert [] == list(await store.reopen([]))

    async def test_a_batch_that_was_over_ends_once_more(
        self, store: Store, hands: Hands
    ) -> None:
        job, flow = a_new_job(), a_new_flow(a_new_step("a"), a_new_step("b", "a"))
        batch = await self.open(hands, Members([job], [flow]))
        course = Course(hands, flow.id)
        await hands.end(job.id, outcome=BAD)
        await course.fail("a")
        await batch.finish()
        await course.retry("a")
        opened = await batch.batch()
        early = await batch.finish()
        await course.end("a")
        await course.end("b", outcome=GOOD)
        await batch.finish()
        await store.reopen([retry(await find(store, job.id))])
        await hands.end(job.id)
        await batch.finish()
        told = await batch.events()

        assert (BatchState.OPEN, 1, None, None, 0) == (
            opened.state,
            opened.generation,
            opened.finished_at,
            opened.counts,
            opened.told,
        )
        assert not early
        done = await batch.batch()
        assert (BatchState.FINISHED, 2) == (done.state, done.generation)
        assert [
            (1, event.BATCH_OPENED),
            (2, event.BATCH_FINISHED),
            (3, event.BATCH_REOPENED),
            (4, event.BATCH_FINISHED),
            (5, event.BATCH_REOPENED),
            (6, event.BATCH_FINISHED),
        ] == [(e.n, e.type) for e in told]
        assert {"generation": 2} == told[4].data

    async def test_a_batch_that_was_not_over_stays_in_its_generation(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job()
        batch = await self.open(hands, Members([job]))
        await hands.end(job.id, outcome=BAD)
        await store.reopen([retry(await find(store, job.id))])
        early = await batch.finish()
        await hands.end(job.id)
        await batch.finish()

        assert not early
        assert 0 == (await batch.batch()).generation
        assert [1, 2] == [e.n for e in await batch.events()]
