"""Flows: steps are released or cancelled, and a flow ends once."""

import asyncio

import pytest

from backburner.domain.events import event
from backburner.domain.groups.flow import Edge, FlowState
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState, Need
from backburner.domain.jobs.outcome import Cancel, Failed, HandedBack
from backburner.ports.store import Store
from backburner.testing.samples import NOON, a_new_flow, a_new_step
from backburner.testing.store.acts import DAY, SECOND, types
from backburner.testing.store.linked import BAD, GOOD, Hands, WithFlows

BLOCKED, QUEUED = JobState.BLOCKED, JobState.QUEUED
SUCCEEDED, FAILED = JobState.SUCCEEDED, JobState.FAILED
CANCELLED = JobState.CANCELLED


class FlowConformance(WithFlows):
    """The consequences of a step's end."""

    async def test_a_chain_runs_one_step_after_the_other(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b", "a"), a_new_step("c", "b")
        )
        seen = [list((await course.states()).values())]
        for name in "abc":
            await course.end(name)
            seen.append(list((await course.states()).values()))

        assert [
            [QUEUED, BLOCKED, BLOCKED],
            [SUCCEEDED, QUEUED, BLOCKED],
            [SUCCEEDED, SUCCEEDED, QUEUED],
            [SUCCEEDED, SUCCEEDED, SUCCEEDED],
        ] == seen
        last = (await course.jobs())["c"]
        assert [event.BLOCKED, event.QUEUED, event.STARTED, event.SUCCEEDED] == (
            await types(store, last.id)
        )

    async def test_a_step_waits_for_the_last_of_its_prerequisites(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("top"),
            *(a_new_step(name, "top") for name in "abc"),
            a_new_step("join", *"abc"),
        )
        await course.end("top")
        waiting = []
        for name in "bca":
            waiting.append((await course.states())["join"])
            await course.end(name)

        assert [BLOCKED] * 3 == waiting
        assert QUEUED is (await course.states())["join"]

    async def test_prerequisites_that_end_in_one_call_release_a_step_once(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b"), a_new_step("c", "a", "b")
        )
        await course.end("a", "b")

        released = (await course.jobs())["c"]
        assert (QUEUED, 2) == (released.state, released.events)
        assert [event.BLOCKED, event.QUEUED] == await types(store, released.id)

    async def test_prerequisites_that_end_at_once_release_a_step_once(
        self, store: Store, hands: Hands
    ) -> None:
        names = [f"s_{n}" for n in range(9)]
        course = await self.begin(
            hands, *(a_new_step(name) for name in names), a_new_step("join", *names)
        )
        jobs = await course.jobs()
        asked = [await hands.settlement(jobs[name].id, GOOD) for name in names]

        await asyncio.gather(*(store.settle([one]) for one in asked))

        assert [event.BLOCKED, event.QUEUED] == await types(store, jobs["join"].id)

    async def test_a_prerequisite_that_is_put_back_releases_nobody(
        self, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("b", "a"))
        await course.end("a", outcome=HandedBack())
        await course.end("a", outcome=Failed("BUSY", "later"))

        assert {"a": JobState.SCHEDULED, "b": BLOCKED} == await course.states()
        assert FlowState.RUNNING is (await course.flow()).state

    async def test_a_flow_remembers_a_step_that_ended_before_it_could_begin(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b", "a"), a_new_step("c")
        )
        await course.expire("b")
        running = (await course.flow()).state
        await course.end("a")
        await course.end("c")

        assert FlowState.RUNNING is running
        assert FlowState.FAILED is (await course.flow()).state

    async def test_a_prerequisite_that_is_named_twice_is_one(
        self, hands: Hands
    ) -> None:
        twice = a_new_step("b", "a", "a", Edge("a", continues=True))
        course = await self.begin(hands, a_new_step("a"), twice)
        other = await self.begin(hands, a_new_step("a"), a_new_step("b", *twice.needs))
        await course.end("a")
        await other.fail("a")

        assert QUEUED is (await course.states())["b"]
        assert CANCELLED is (await other.states())["b"], (
            "an edge that must be met is not made a lax one by another beside it"
        )

    async def test_a_released_step_waits_for_its_time(
        self, store: Store, hands: Hands
    ) -> None:
        late, due = NOON + DAY, NOON
        course = await self.begin(
            hands,
            a_new_step("a"),
            a_new_step("late", "a", run_at=late),
            a_new_step("due", "a", run_at=due),
        )
        await course.end("a")
        states = await course.states()
        promoted = await store.promote(now=late, limit=9)

        assert (JobState.SCHEDULED, QUEUED) == (states["late"], states["due"])
        assert 1 == promoted
        assert QUEUED is (await course.states())["late"]

    async def test_a_step_sees_what_its_prerequisites_came_to(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("a"),
            a_new_step("b"),
            a_new_step("c", "a", Edge("b", continues=True)),
            a_new_step("d"),
        )
        await course.end("a")
        await course.fail("b")
        jobs = await course.jobs()
        claims = await hands.take()

        step, first = claims[jobs["c"].id], claims[jobs["d"].id]
        assert (2, 0, []) == (step.needs, first.needs, list(first.given))
        good, bad = step.given
        assert Need("a", jobs["a"].id, SUCCEEDED, "1", None) == good
        assert ("b", FAILED, None) == (bad.step, bad.state, bad.output)
        assert bad.error is not None
        assert "BAD" == bad.error["code"]

    @pytest.mark.parametrize("how", ["fails", "is cancelled", "is ended", "expires"])
    async def test_a_step_that_does_not_succeed_gives_up_whoever_needs_it(
        self, store: Store, hands: Hands, how: str
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("a"),
            a_new_step("b", "a"),
            a_new_step("c", "b"),
            a_new_step("d", "c"),
        )
        if how == "fails":
            await course.fail("a")
        elif how == "is ended":
            await course.end("a", outcome=Cancel("no"))
        elif how == "is cancelled":
            await course.cancel("a")
        else:
            await course.expire("a")
        jobs = await course.jobs()

        assert {CANCELLED} == {jobs[name].state for name in "bcd"}
        errors = [jobs[name].error for name in "bcd"]
        assert {transitions.DEPENDENCY_FAILED} == {e.code for e in errors if e}
        assert [event.BLOCKED, event.CANCELLED] == await types(store, jobs["d"].id)
        told = (await store.history(jobs["d"].id, after=1, limit=9))[0]
        assert transitions.DEPENDENCY_FAILED == told.data["error"]["code"]
        assert (await course.flow()).state.is_final

    async def test_whoever_continues_runs_whatever_came_before(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("a"),
            a_new_step("b", "a"),
            a_new_step("anyway", Edge("a", continues=True)),
            a_new_step("after", Edge("b", continues=True)),
        )
        await course.fail("a")
        states = await course.states()

        assert CANCELLED is states["b"]
        assert (QUEUED, QUEUED) == (states["anyway"], states["after"])
        assert FlowState.RUNNING is (await course.flow()).state

    async def test_a_step_that_was_given_up_is_not_released(self, hands: Hands) -> None:
        course = await self.begin(
            hands, a_new_step("a"), a_new_step("b"), a_new_step("c", "a", "b")
        )
        await course.fail("a")
        early = (await course.flow()).state
        await course.end("b")

        assert CANCELLED is (await course.states())["c"]
        assert (FlowState.RUNNING, FlowState.FAILED) == (
            early,
            (await course.flow()).state,
        )

    async def test_a_step_that_is_counted_down_and_given_up_does_not_hold_its_flow(
        self, hands: Hands
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("a"),
            a_new_step("b", "a"),
            a_new_step("c", Edge("a", continues=True), "b"),
        )
        other = await self.begin(
            hands, a_new_step("a"), a_new_step("b"), a_new_step("c", "a", "b")
        )
        await course.fail("a")
        await other.settle({"a": GOOD, "b": BAD})

        assert CANCELLED is (await course.states())["c"]
        assert FlowState.RUNNING is not (await course.flow()).state, (
            "the flow ends with the last of its steps, whichever way that ended"
        )
        assert FlowState.FAILED is (await other.flow()).state

    async def test_steps_are_outlined_and_read_by_their_numbers(
        self, store: Store, hands: Hands
    ) -> None:
        course, other = await self.begin_all(
            hands,
            a_new_flow(
                a_new_step("a"),
                a_new_step("b", "a"),
                a_new_step("c", "b", Edge("a", continues=True)),
            ),
            a_new_flow(a_new_step("x")),
        )
        await course.end("a")
        flow = (await course.flow()).seq
        steps = await store.steps(flow)
        numbers = {step.job.step: step.seq for step in steps}
        a, b, c = (numbers[name] for name in "abc")
        [x] = [job.seq for job in (await other.jobs()).values()]
        outline = await store.outline(flow, needs=True)

        assert [(a, SUCCEEDED), (b, QUEUED), (c, BLOCKED)] == [
            (step.seq, step.state) for step in outline
        ]
        assert [[], [(a, False)], [(a, True), (b, False)]] == [
            sorted(step.needs) for step in outline
        ]
        assert {step.job.capability for step in steps} == {
            step.capability for step in outline
        }
        assert [step._replace(needs=()) for step in outline] == [
            *await store.outline(flow, needs=False)
        ]
        assert [steps[0], steps[2]] == [*await store.some_steps(flow, [c, a, x])]
        assert [] == [*await store.some_steps(flow, [])]

    async def test_a_flow_is_what_its_steps_came_to(self, hands: Hands) -> None:
        good, bad, ended, tolerated = await self.begin_all(
            hands,
            a_new_flow(a_new_step("a"), a_new_step("b")),
            a_new_flow(a_new_step("a"), a_new_step("b")),
            a_new_flow(a_new_step("a"), a_new_step("b")),
            a_new_flow(a_new_step("a"), a_new_step("b", Edge("a", continues=True))),
        )
        await good.end("a", "b")
        await bad.end("a", outcome=Cancel("no"))
        await bad.fail("b")
        await ended.end("a")
        await ended.end("b", outcome=Cancel("no"))
        await tolerated.fail("a")
        await tolerated.end("b")

        assert [
            FlowState.SUCCEEDED,
            FlowState.FAILED,
            FlowState.CANCELLED,
            FlowState.SUCCEEDED,
        ] == [(await c.flow()).state for c in (good, bad, ended, tolerated)]
        assert NOON + SECOND == (await good.flow()).finished_at

    async def test_a_flow_tells_of_its_beginning_and_its_end_once(
        self, hands: Hands
    ) -> None:
        names = [f"s_{n}" for n in range(5)]
        course = await self.begin(hands, *(a_new_step(name) for name in names))
        await course.end(*names[:2])
        early = [e.type for e in await course.events()]
        await course.end(*names[2:])
        told = await course.events()

        assert [event.FLOW_STARTED] == early
        assert [(1, event.FLOW_STARTED), (2, "flow.succeeded")] == [
            (e.n, e.type) for e in told
        ]
        assert 2 == (await course.flow()).events

    @pytest.mark.parametrize("cancelled_in", ["one", "many"])
    async def test_a_flow_is_cancelled_whatever_its_steps_do(
        self, store: Store, hands: Hands, cancelled_in: str
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("done"),
            a_new_step("running"),
            a_new_step("scheduled", run_at=NOON + DAY),
            a_new_step("queued", "done"),
            a_new_step("blocked", "running"),
            a_new_step("anyway", Edge("running", continues=True)),
        )
        held = await hands.take()
        await course.end("done")
        running = held[(await course.jobs())["running"].id]
        seq = (await course.flow()).seq
        change = transitions.cancel_all("no", now=NOON + SECOND)

        calls = 1 if cancelled_in == "one" else 5
        ended = await asyncio.gather(
            *(store.cancel_flow(seq, change) for _ in range(calls))
        )
        late = await course.end("running")
        states = await course.states()

        assert 5 == sum(ended)
        assert [None] == list(late), "the worker finds that its token is gone"
        assert {"done": SUCCEEDED} == {
            name: state for name, state in states.items() if state is not CANCELLED
        }
        assert FlowState.CANCELLED is (await course.flow()).state
        assert 2 == len(await course.events())
        assert event.CANCELLED == (await types(store, running.id))[-1]
        assert 0 == await store.cancel_flow(seq, change)
