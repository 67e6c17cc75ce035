"""Steps that are added to a flow from within one of its steps."""

from collections.abc import Sequence

import pytest

from backburner.domain.errors import IllegalTransition, InvalidInput, Problem
from backburner.domain.events import event
from backburner.domain.groups.batch import Members
from backburner.domain.groups.flow import Edge, FlowState, NewStep
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Change
from backburner.ports.store import Store
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import NOON, a_new_flow, a_new_step
from backburner.testing.store.acts import DAY, Refused
from backburner.testing.store.linked import (
    GOOD,
    Collection,
    Course,
    Hands,
    WithFlows,
    adding,
)

BLOCKED, QUEUED = JobState.BLOCKED, JobState.QUEUED
CANCELLED = JobState.CANCELLED


async def add(course: Course, name: str, *steps: NewStep) -> Sequence[Change | None]:
    """Settle a step successfully with added steps."""
    flow = (await course.flow()).seq
    return await course.end(name, body=adding(flow, *steps))


class ExtendConformance(WithFlows):
    """`Tx.extend`: together with the settlement, or not at all."""

    async def test_added_steps_begin_with_the_success_that_adds_them(
        self, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"))
        await add(
            course,
            "a",
            a_new_step("b", "a"),
            a_new_step("c", "b"),
            a_new_step("late", "a", run_at=NOON + DAY),
            a_new_step("free"),
        )
        states = await course.states()
        await course.end("b", "free")
        await course.end("c")

        assert (QUEUED, BLOCKED, JobState.SCHEDULED, QUEUED) == (
            states["b"],
            states["c"],
            states["late"],
            states["free"],
        )
        assert FlowState.RUNNING is (await course.flow()).state
        assert 1 == len(await course.events())

    async def test_an_added_step_waits_for_all_that_it_needs(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("done"), a_new_step("a"), a_new_step("slow")
        )
        await course.end("done")
        await add(
            course,
            "a",
            a_new_step("b", "a", "slow"),
            a_new_step("c", "a", "done", "slow"),
            a_new_step("d", "done"),
            a_new_step("e", "a", "b"),
        )
        early = await course.states()
        await course.end("slow")
        late = await course.states()

        assert [BLOCKED, BLOCKED, QUEUED, BLOCKED] == [early[name] for name in "bcde"]
        assert [QUEUED, QUEUED, QUEUED, BLOCKED] == [late[name] for name in "bcde"]

    async def test_a_step_that_waits_already_waits_for_added_ones_too(
        self, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("join", "a"))
        await add(
            course,
            "a",
            a_new_step("b", "a", before=["join"]),
            a_new_step("c", "a", before=["join"]),
        )
        held = (await course.states())["join"]
        await course.end("b")
        still = (await course.states())["join"]
        await course.end("c")
        released = (await course.states())["join"]
        await course.end("join")

        assert (BLOCKED, BLOCKED, QUEUED) == (held, still, released)
        assert FlowState.SUCCEEDED is (await course.flow()).state

    async def test_a_step_is_given_up_with_one_that_was_put_before_it(
        self, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("join", "a"))
        await add(course, "a", a_new_step("b", "a", before=["join"]))
        await course.fail("b")

        assert CANCELLED is (await course.states())["join"]
        assert FlowState.FAILED is (await course.flow()).state

    async def test_what_is_added_after_a_failure_is_given_up_at_once(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("bad"), a_new_step("a"), a_new_step("join", "a")
        )
        await course.fail("bad")
        await add(
            course,
            "a",
            a_new_step("b", "bad", "a", before=["join"]),
            a_new_step("c", "b"),
            a_new_step("anyway", "a", Edge("bad", continues=True)),
            a_new_step("last", "a", Edge("c", continues=True)),
        )
        states = await course.states()
        await course.end("anyway", "last")

        assert {CANCELLED} == {states[name] for name in ("b", "c", "join")}
        assert (QUEUED, QUEUED) == (states["anyway"], states["last"])
        assert FlowState.RUNNING is not (await course.flow()).state, (
            "nothing waits for a step that will never run"
        )

    @pytest.mark.parametrize(
        ("steps", "error"),
        [
            ([a_new_step("b", "nobody")], InvalidInput),
            ([a_new_step("b", before=["nobody"])], InvalidInput),
            ([a_new_step("other", "a")], InvalidInput),
            ([a_new_step("b", "a"), a_new_step("b", "a")], InvalidInput),
            ([a_new_step("b", "join", before=["join"])], InvalidInput),
            (
                [a_new_step("b", "end"), a_new_step("c", "b", before=["join"])],
                InvalidInput,
            ),
            ([a_new_step("b", before=["done"])], IllegalTransition),
        ],
        ids=["need", "before", "name", "names", "circle", "detour", "late"],
    )
    async def test_steps_that_make_no_sense_are_refused_and_nothing_is_kept(
        self,
        hands: Hands,
        steps: Sequence[NewStep],
        error: type[Exception],
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("done"),
            a_new_step("a"),
            a_new_step("other"),
            a_new_step("join", "a"),
            a_new_step("end", "join"),
        )
        await course.end("done")
        flow = (await course.flow()).seq

        with pytest.raises(error):
            await course.end("a", body=adding(flow, *steps))

        assert JobState.RUNNING is (await course.states())["a"]
        assert 5 == len(await course.jobs())
        assert BLOCKED is (await course.states())["join"]

    async def test_a_step_may_be_put_before_one_and_another_after_it(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("x"), a_new_step("join", "a")
        )
        await add(
            course,
            "a",
            a_new_step("b", "x", before=["join"]),
            a_new_step("c", "join"),
        )
        for name in ("x", "b", "join", "c"):
            await course.end(name)

        assert FlowState.SUCCEEDED is (await course.flow()).state

    async def test_a_body_that_fails_adds_nothing_and_the_job_goes_another_way(
        self, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("join", "a"))
        flow = (await course.flow()).seq

        def body(tx: Tx) -> None:
            tx.extend(flow, [a_new_step("b", "a", before=["join"])])
            raise Refused("no")

        def otherwise(error: Exception) -> Change:
            return Change(
                JobState.FAILED, event.FAILED, NOON, error=Problem("NO", str(error))
            )

        await course.end("a", body=body, otherwise=otherwise)
        left = await course.states()
        await course.retry("a")
        await course.end("a")

        assert {"a": JobState.FAILED, "join": CANCELLED} == left
        assert QUEUED is (await course.states())["join"]

    async def test_whoever_lost_the_job_adds_nothing(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"))
        job = (await course.jobs())["a"]
        flow = (await course.flow()).seq
        body = adding(flow, a_new_step("b", "a"))
        asked = await hands.settlement(job.id, GOOD, body=body)

        applied = await store.settle([asked._replace(token="stale")])

        assert [None] == list(applied)
        assert ["a"] == list(await course.jobs())

    async def test_a_flow_that_is_over_takes_no_more(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"))
        await course.end("a")
        flow = (await course.flow()).seq

        with pytest.raises(IllegalTransition):
            await store.transact(adding(flow, a_new_step("b", "a")))

        assert ["a"] == list(await course.jobs())

    async def extended(self, hands: Hands) -> tuple[Collection, Course]:
        """Open a batch of one flow, whose first step has ended and added two."""
        flow = a_new_flow(a_new_step("a"))
        batch = await self.open(hands, Members(flows=[flow]))
        course = Course(hands, flow.id)
        await add(course, "a", a_new_step("b", "a"), a_new_step("c", "b"))
        return batch, course

    async def test_steps_that_are_added_belong_to_the_flows_batch(
        self, hands: Hands
    ) -> None:
        batch, course = await self.extended(hands)
        counted = await batch.counts()
        is_over = await batch.is_over()
        ended = await batch.cancel()

        assert {"succeeded": 1, "queued": 1, "blocked": 1} == dict(counted.jobs)
        assert {"running": 1} == dict(counted.members)
        assert not is_over
        assert 2 == ended
        assert FlowState.CANCELLED is (await course.flow()).state

    async def test_steps_that_were_added_are_counted_when_the_flow_is_over(
        self, hands: Hands
    ) -> None:
        batch, course = await self.extended(hands)
        await course.end("b")
        await course.end("c")
        counted = await batch.counts()

        assert {"succeeded": 3} == dict(counted.jobs)
        assert {"succeeded": 1} == dict(counted.members)
