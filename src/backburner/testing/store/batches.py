"""Batches: filled up to the expected number, counted, ended once."""

import asyncio

import orjson
import pytest

from backburner.domain.errors import IdempotencyConflict, IllegalTransition
from backburner.domain.events import event
from backburner.domain.groups.batch import BatchState, Members
from backburner.domain.groups.flow import FlowState
from backburner.domain.jobs.job import JobState, Submitted
from backburner.domain.jobs.outcome import Cancel
from backburner.ports.store import Store
from backburner.ports.store.flows import GroupFilter
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.samples import (
    ANN,
    BOB,
    NOON,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import DAY, SECOND, Refused, find
from backburner.testing.store.linked import (
    BAD,
    LATER,
    Course,
    Hands,
    WithFlows,
)


def some_jobs(count: int) -> Members:
    """Return members that are plain jobs."""
    return Members([a_new_job() for _ in range(count)])


class BatchConformance(WithFlows):
    """`open_batch` to `finish_batch`."""

    async def test_a_batch_reads_back_as_it_was_asked_for(self, store: Store) -> None:
        asked = a_new_batch(
            owner=BOB,
            expected=7,
            sealed=False,
            completion='{"capability":"sum"}',
            callback='{"url":"x"}',
            tags=("one", "two"),
            request_id="r_1",
            traceparent="t_1",
            body_hash="h",
        )

        answer = await store.open_batch(asked, Members())
        [batch] = await store.find_batches([asked.id, "batch_unknown"])

        assert Submitted(asked.id, BatchState.OPEN) == answer
        assert {name: getattr(asked, name) for name in _READ_BACK} == {
            name: getattr(batch, name) for name in _READ_BACK
        }
        assert (BatchState.OPEN, 0, 1, 0, None, None) == (
            batch.state,
            batch.generation,
            batch.events,
            batch.told,
            batch.counts,
            batch.finished_at,
        )

    async def test_batches_are_listed_newest_first_to_their_owner(
        self, store: Store
    ) -> None:
        mine = [a_new_batch(tags=(f"t_{n}",)) for n in range(3)]
        for batch in [*mine, a_new_batch(owner=BOB)]:
            await store.open_batch(batch, Members())

        page = await store.batches(GroupFilter(ANN), before=None, limit=2)
        rest = await store.batches(GroupFilter(ANN), before=page[-1].seq, limit=9)
        tagged = GroupFilter(ANN, state=BatchState.OPEN, tag="t_1")
        over = GroupFilter(ANN, state=BatchState.FINISHED)

        listed = [batch.id for batch in (*page, *rest)]
        assert [batch.id for batch in reversed(mine)] == listed
        assert 1 == len(await store.batches(tagged, before=None, limit=9))
        assert [] == list(await store.batches(over, before=None, limit=9))

    async def test_a_batch_counts_its_members_and_all_their_jobs(
        self, hands: Hands
    ) -> None:
        jobs = [a_new_job() for _ in range(3)]
        flows = [a_new_flow(a_new_step("a"), a_new_step("b", "a")) for _ in range(2)]
        batch = await self.open(hands, Members(jobs, flows))
        await self.begin(hands, a_new_step("a"))
        at_first = await batch.counts()
        await hands.end(jobs[0].id)
        await hands.end(jobs[1].id, outcome=BAD)
        await Course(hands, flows[0].id).fail("a")
        await Course(hands, flows[1].id).end("a")

        counts = await batch.counts()
        listed = await hands.store.jobs(
            JobFilter(batch=await batch.seq()), before=None, limit=99
        )
        assert 7 == len(listed), "its jobs and the steps of its flows"
        assert {"queued": 3, "running": 2} == dict(at_first.members)
        assert {"queued": 5, "blocked": 2} == dict(at_first.jobs)
        assert (5, 0) == (at_first.total, at_first.done)
        assert {"succeeded": 1, "failed": 2, "running": 2} == dict(counts.members)
        assert {
            "succeeded": 2,
            "failed": 2,
            "running": 1,
            "cancelled": 1,
            "queued": 1,
        } == dict(counts.jobs)
        assert (5, 3, False) == (counts.total, counts.done, counts.is_over)

    async def test_a_batch_is_stored_with_its_members_or_not_at_all(
        self, store: Store
    ) -> None:
        known = a_new_job(idempotency_key="k", body_hash="h")
        await store.submit([known])
        batch, good = a_new_batch(), a_new_job()
        bad = a_new_job(idempotency_key="k", body_hash="other")

        with pytest.raises(IdempotencyConflict):
            await store.open_batch(batch, Members([good, bad], [a_new_flow()]))

        assert [] == list(await store.find_batches([batch.id]))
        assert [known.id] == [
            job.id for job in await store.jobs(JobFilter(), before=None, limit=9)
        ]
        assert 1 == len((await store.stream(ANN, after=0, limit=9)).events)

    async def test_a_key_stands_for_the_first_batch(
        self, store: Store, hands: Hands
    ) -> None:
        keyed = {"idempotency_key": "k", "body_hash": "h"}
        first = a_new_batch(**keyed)
        await store.open_batch(first, some_jobs(1))

        answers = await asyncio.gather(
            *(store.open_batch(a_new_batch(**keyed), some_jobs(1)) for _ in range(9))
        )
        with pytest.raises(IdempotencyConflict):
            await store.open_batch(
                a_new_batch(**keyed | {"body_hash": "o"}), some_jobs(1)
            )
        late = a_new_batch(**keyed, created_at=NOON + DAY)
        newer = a_new_batch(**keyed, created_at=NOON + DAY + 1)

        assert {Submitted(first.id, BatchState.OPEN, replayed=True)} == {*answers}
        assert (await store.open_batch(late, Members())).replayed
        assert not (await store.open_batch(newer, Members())).replayed
        assert 1 == len(await hands.take())

    async def test_a_batch_is_filled_until_it_is_sealed(self, hands: Hands) -> None:
        batch = await self.open(hands, some_jobs(1), sealed=False)
        await batch.fill(some_jobs(2))
        await batch.fill(Members(flows=[a_new_flow(a_new_step("a"))]), seal=True)
        await batch.fill(Members(), seal=True)

        with pytest.raises(IllegalTransition):
            await batch.fill(some_jobs(1))
        with pytest.raises(IllegalTransition):
            await batch.fill(some_jobs(1), seal=True)

        assert (await batch.batch()).sealed
        assert 4 == (await batch.counts()).total

    async def test_a_batch_takes_no_more_than_it_expects(
        self, store: Store, hands: Hands
    ) -> None:
        batch = await self.open(hands, some_jobs(1), expected=3, sealed=False)
        full = await self.open(hands, some_jobs(3), expected=3, sealed=False)
        overfull = a_new_batch(expected=2, sealed=False)

        with pytest.raises(IllegalTransition):
            await batch.fill(some_jobs(3))
        with pytest.raises(IllegalTransition):
            await store.open_batch(overfull, some_jobs(3))
        held = (await batch.counts()).total
        await batch.fill(some_jobs(2))

        assert 1 == held, "what does not fit leaves nothing"
        assert [] == list(await store.find_batches([overfull.id]))
        assert (await full.batch()).sealed
        assert (await batch.batch()).sealed
        assert 3 == (await batch.counts()).total
        assert 6 == len(await store.jobs(JobFilter(), before=None, limit=99))

    async def test_a_filling_under_keys_is_repeated_without_harm(
        self, hands: Hands
    ) -> None:
        def keyed(body: str = "same") -> Members:
            job = a_new_job(idempotency_key="job", body_hash=body)
            step = a_new_step("a")
            flow = a_new_flow(step, idempotency_key="flow", body_hash=body)
            return Members([job], [flow])

        batch = await self.open(hands, Members(), expected=2, sealed=False)
        first = await batch.fill(keyed())
        again = await batch.fill(keyed(), seal=True)

        with pytest.raises(IdempotencyConflict):
            await batch.fill(keyed("other"))
        with pytest.raises(IllegalTransition):
            await batch.fill(Members([*keyed().jobs, a_new_job()]))
        assert [False, False] == [answer.replayed for answer in first]
        assert [(answer.id, True) for answer in first] == [
            (answer.id, answer.replayed) for answer in again
        ]
        assert 2 == (await batch.counts()).total

    async def test_a_batch_that_is_filled_by_many_at_once_is_filled_exactly(
        self, hands: Hands
    ) -> None:
        batch = await self.open(hands, Members(), expected=5, sealed=False)
        answers = await asyncio.gather(
            *(batch.fill(some_jobs(2)) for _ in range(4)), return_exceptions=True
        )

        refused = [a for a in answers if isinstance(a, IllegalTransition)]
        assert 2 == len(refused)
        assert 4 == (await batch.counts()).total
        assert not (await batch.batch()).sealed

    async def test_a_batch_is_over_when_nothing_of_it_is_left_to_do(
        self, hands: Hands
    ) -> None:
        jobs = [a_new_job() for _ in range(3)]
        flow = a_new_flow(a_new_step("a"), a_new_step("b", "a"))
        batch = await self.open(hands, Members(jobs, [flow]), sealed=False)
        unsealed = await self.open(hands, Members(), sealed=False)
        empty = await self.open(hands, Members())
        await hands.end(jobs[0].id)
        await hands.end(jobs[1].id, outcome=BAD)
        await hands.end(jobs[2].id, outcome=Cancel("no"))
        await Course(hands, flow.id).fail("a")
        open_ = (await batch.is_over(), await batch.finish())
        await batch.fill(Members(), seal=True)

        assert (False, False) == open_, "a batch that takes more is not over"
        assert await batch.is_over()
        assert await batch.finish()
        assert not await batch.is_over()
        assert (await empty.is_over(), await empty.finish()) == (True, True)
        assert (await unsealed.is_over(), await unsealed.finish()) == (False, False)
        last = await batch.batch()
        assert (BatchState.FINISHED, LATER) == (last.state, last.finished_at)
        assert {
            "total": 4,
            "done": 4,
            "members": {"succeeded": 1, "failed": 2, "cancelled": 1},
            "jobs": {"succeeded": 1, "failed": 2, "cancelled": 2},
        } == orjson.loads(last.counts or "")

    @pytest.mark.parametrize("left", ["queued", "scheduled", "running", "blocked"])
    async def test_a_batch_with_something_left_to_do_does_not_end(
        self, hands: Hands, left: str
    ) -> None:
        job = a_new_job(run_at=NOON + DAY if left == "scheduled" else None)
        flow = a_new_flow(
            a_new_step("a", run_at=NOON + DAY), a_new_step("blocked", "a")
        )
        members = Members(flows=[flow]) if left == "blocked" else Members([job])
        batch = await self.open(hands, members)
        if left == "running":
            await hands.take()

        assert (False, False) == (await batch.is_over(), await batch.finish())
        assert BatchState.OPEN is (await batch.batch()).state

    async def test_a_batch_ends_once_with_the_jobs_that_follow(
        self, store: Store, hands: Hands
    ) -> None:
        job, then = a_new_job(), a_new_job(owner=BOB)
        batch = await self.open(hands, Members([job]))
        await hands.end(job.id)

        answers = await asyncio.gather(
            *(batch.finish(a_new_job(id=f"{then.id}_{n}")) for n in range(5))
        )

        assert [False] * 4 + [True] == sorted(answers)
        ids = [f"{then.id}_{n}" for n in range(5)]
        [followed] = await store.find(ids)
        assert JobState.QUEUED is followed.state
        assert [(1, event.BATCH_OPENED), (2, event.BATCH_FINISHED)] == [
            (e.n, e.type) for e in await batch.events()
        ]
        assert 1 == (await batch.events())[1].data["done"]

    async def test_what_follows_is_decided_by_what_the_batch_came_to(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job()
        batch = await self.open(hands, Members([job]), completion="{}")
        await hands.end(job.id, outcome=BAD)
        seen = []

        def refuse(found: object, counts: object) -> list[object]:
            seen.append((found, counts))
            raise Refused("no")

        with pytest.raises(Refused):
            await store.finish_batch(await batch.seq(), refuse, now=LATER)  # type: ignore[arg-type]

        assert BatchState.OPEN is (await batch.batch()).state
        assert [(await batch.batch(), await batch.counts())] == seen[:1]

    async def test_progress_is_told_when_there_is_any_and_not_too_often(
        self, hands: Hands
    ) -> None:
        jobs = [a_new_job() for _ in range(3)]
        batch = await self.open(hands, Members(jobs))
        nothing = await batch.tell()
        await hands.end(jobs[0].id)
        first = await asyncio.gather(*(batch.tell() for _ in range(5)))
        await hands.end(jobs[1].id)
        soon = await batch.tell(now=LATER + SECOND - 1)
        second = await batch.tell(now=LATER + SECOND)
        same = await batch.tell(now=LATER + DAY)
        await hands.end(jobs[2].id)
        await batch.finish()
        over = await batch.tell(now=LATER + DAY)
        told = await batch.events()

        assert not nothing
        assert [False] * 4 + [True] == sorted(first)
        assert (False, True, False) == (soon, second, same)
        assert not over
        assert [
            (2, event.BATCH_PROGRESS, 1, 3),
            (3, event.BATCH_PROGRESS, 2, 3),
            (4, event.BATCH_FINISHED, 3, 3),
        ] == [(e.n, e.type, e.data["done"], e.data["total"]) for e in told[1:]]
        assert 3 == (await batch.batch()).told

    async def test_a_batch_is_cancelled_whatever_its_members_do(
        self, store: Store, hands: Hands
    ) -> None:
        done, running = a_new_job(), a_new_job()
        waiting = [a_new_job(run_at=NOON + DAY), a_new_job(queue="other")]
        flow = a_new_flow(a_new_step("a"), a_new_step("b", "a"))
        batch = await self.open(
            hands, Members([done, running, *waiting], [flow]), sealed=False
        )
        await hands.take()
        await hands.end(done.id)

        ended = await batch.cancel()
        late = await hands.end(running.id)

        assert 5 == ended
        assert [None] == list(late)
        assert JobState.SUCCEEDED is (await find(store, done.id)).state
        assert {"succeeded": 1, "cancelled": 4} == dict((await batch.counts()).members)
        assert FlowState.CANCELLED is (await Course(hands, flow.id).flow()).state
        with pytest.raises(IllegalTransition):
            await batch.fill(some_jobs(1))
        assert await batch.is_over()
        assert await batch.finish()
        assert 0 == await batch.cancel()
        assert BatchState.FINISHED is (await batch.batch()).state


_READ_BACK = (
    "id",
    "owner",
    "created_at",
    "expected",
    "sealed",
    "completion",
    "callback",
    "tags",
    "request_id",
    "traceparent",
    "body_hash",
)
