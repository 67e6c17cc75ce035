"""Storing flows: all steps or none, and once per key."""

import asyncio

import pytest

from backburner.domain.errors import IdempotencyConflict, InvalidInput
from backburner.domain.groups.flow import Edge, FlowState
from backburner.domain.jobs.job import JobState, Submitted
from backburner.ports.store import Store
from backburner.ports.store.flows import GroupFilter
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.samples import ANN, BOB, NOON, a_new_flow, a_new_step
from backburner.testing.store.acts import DAY
from backburner.testing.store.linked import Hands, WithFlows

BLOCKED, QUEUED = JobState.BLOCKED, JobState.QUEUED


class FlowSubmitConformance(WithFlows):
    """`submit_flows`: all or none, and once per key."""

    async def test_a_flow_reads_back_as_it_was_asked_for(self, store: Store) -> None:
        asked = a_new_flow(
            a_new_step("a", owner=BOB),
            a_new_step("b", "a", owner=BOB),
            a_new_step("c", "a", Edge("b", continues=True), owner=BOB),
            owner=BOB,
            deadline=NOON + DAY,
            callback='{"url":"x"}',
            tags=("one", "two"),
            request_id="r_1",
            traceparent="t_1",
            idempotency_key="k",
            body_hash="h",
        )

        answers = await store.submit_flows([asked])
        [flow] = await store.find_flows([asked.id, "flow_unknown"])
        steps = await store.steps(flow.seq)

        assert [Submitted(asked.id, FlowState.RUNNING)] == list(answers)
        assert {name: getattr(asked, name) for name in _READ_BACK} == {
            name: getattr(flow, name) for name in _READ_BACK
        }
        assert (FlowState.RUNNING, 0, 1, None) == (
            flow.state,
            flow.generation,
            flow.events,
            flow.finished_at,
        )
        assert [
            ("a", QUEUED, []),
            ("b", BLOCKED, [Edge("a")]),
            ("c", BLOCKED, [Edge("a"), Edge("b", continues=True)]),
        ] == [(s.job.step, s.job.state, list(s.needs)) for s in steps]
        assert {flow.seq} == {step.job.flow for step in steps}

    async def test_flows_are_listed_newest_first_to_their_owner(
        self, store: Store
    ) -> None:
        flows = [a_new_flow(a_new_step("a"), tags=(f"t_{n}",)) for n in range(3)]
        await store.submit_flows([*flows, a_new_flow(owner=BOB)])
        await store.submit_flows([a_new_flow()])

        mine = await store.flows(GroupFilter(ANN), before=None, limit=2)
        rest = await store.flows(GroupFilter(ANN), before=mine[-1].seq, limit=9)
        over = GroupFilter(ANN, state=FlowState.SUCCEEDED)
        tagged = GroupFilter(ANN, tag="t_1")

        assert [flows[2].id] == [flow.id for flow in mine[1:]]
        assert [flows[1].id, flows[0].id] == [flow.id for flow in rest]
        assert 1 == len(await store.flows(over, before=None, limit=9))
        assert [flows[1].id] == [
            flow.id for flow in await store.flows(tagged, before=None, limit=9)
        ]

    async def test_a_flow_without_steps_is_over_at_once(self, hands: Hands) -> None:
        course = await self.begin(hands)

        flow = await course.flow()
        assert (FlowState.SUCCEEDED, NOON) == (flow.state, flow.finished_at)
        assert [1, 2] == [e.n for e in await course.events()]

    async def test_no_flows_are_no_error(self, store: Store) -> None:
        assert [] == list(await store.submit_flows([]))

    async def test_flows_are_stored_all_or_none(self, store: Store) -> None:
        known = a_new_flow(a_new_step("a"), idempotency_key="k", body_hash="h")
        await store.submit_flows([known])
        good = a_new_flow(a_new_step("a"), a_new_step("b", "a"))
        other = a_new_flow(a_new_step("a"), idempotency_key="k", body_hash="other")
        twice = a_new_flow(a_new_step("a"), a_new_step("a"))
        nowhere = a_new_flow(a_new_step("a", before=["b"]))

        with pytest.raises(IdempotencyConflict):
            await store.submit_flows([good, other])
        with pytest.raises(Exception, match=r"(?i)unique"):
            await store.submit_flows([good, twice])
        with pytest.raises(InvalidInput):
            await store.submit_flows([good, nowhere])

        refused = [good.id, other.id, twice.id, nowhere.id]
        assert [] == list(await store.find_flows(refused))
        assert 1 == len(await store.jobs(JobFilter(), before=None, limit=9))
        assert 2 == len((await store.stream(ANN, after=0, limit=9)).events)

    async def test_a_key_stands_for_the_first_flow(
        self, store: Store, hands: Hands
    ) -> None:
        first = a_new_flow(a_new_step("a"), idempotency_key="k", body_hash="h")
        await store.submit_flows([first])
        again = [
            a_new_flow(a_new_step("a"), idempotency_key="k", body_hash="h")
            for _ in range(9)
        ]
        other = a_new_flow(owner=BOB, idempotency_key="k", body_hash="other")

        answers = await asyncio.gather(*(store.submit_flows([one]) for one in again))
        [late] = await store.submit_flows(
            [a_new_flow(idempotency_key="k", body_hash="h", created_at=NOON + DAY)]
        )
        await store.submit_flows([other])
        [newer] = await store.submit_flows(
            [a_new_flow(idempotency_key="k", body_hash="o", created_at=NOON + DAY + 1)]
        )

        replay = Submitted(first.id, FlowState.RUNNING, replayed=True)
        assert [[replay]] * 9 == [list(answer) for answer in answers]
        assert replay == late
        assert not newer.replayed, "a key is good for a day"
        assert 1 == len(await hands.take())


_READ_BACK = (
    "id",
    "owner",
    "created_at",
    "deadline",
    "callback",
    "tags",
    "request_id",
    "traceparent",
    "body_hash",
)
