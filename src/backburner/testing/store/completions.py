"""Completions: one job for each end of another, in the same transaction."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
import pytest

from backburner.domain.blobs.blob import BlobKey, Reference, reference
from backburner.domain.costs.budget import Balance
from backburner.domain.groups.batch import Members
from backburner.domain.jobs import transitions
from backburner.domain.jobs.completion import TAG, large_input, with_completion
from backburner.domain.jobs.job import Job, JobState
from backburner.domain.jobs.outcome import Cancel, Done, Expired, Failed, HandedBack
from backburner.domain.jobs.transitions import Change, Limits
from backburner.domain.queues.queue import Queue
from backburner.ports.store import Store
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.samples import BOB, NOON, a_new_flow, a_new_job, a_new_step
from backburner.testing.store.acts import SECOND, find, move, settlement, types
from backburner.testing.store.budgets import HUNDRED, ann, calls
from backburner.testing.store.linked import (
    BAD,
    CALLBACK,
    GOOD,
    Course,
    Hands,
    WithFlows,
    adding,
    told_of,
)

COMPLETION: Final = {
    "capability": "settle up",
    "queue": "after",
    "max_attempts": 2,
    "input": {"order": 7},
    "tokens": 60,
}
FOLLOWED: Final = with_completion(None, COMPLETION)


async def completions(store: Store, job_id: str) -> list[Job]:
    """Return the completions of a job, oldest first."""
    where = JobFilter(tag=f"{TAG}{job_id}")
    listed = await store.jobs(where, before=None, limit=99)
    found = await store.find([job.id for job in listed])
    return sorted(found, key=lambda job: job.seq)


async def ends_of(store: Store, job_id: str) -> list[tuple[str, int]]:
    """Return the state and generation in the input of each completion of a job."""
    told = [orjson.loads(job.input)["job"] for job in await completions(store, job_id)]
    return [(one["state"], one["generation"]) for one in told]


async def _fail(hands: Hands, job_id: str) -> None:
    await hands.end(job_id, outcome=BAD)


async def _exhaust(hands: Hands, job_id: str) -> None:
    claim = (await hands.take())[job_id]
    last = claim._replace(attempt=claim.max_attempts)
    failed = settlement(last, Failed("BUSY", "again"))
    await hands.store.settle([failed])


async def _cancel_inside(hands: Hands, job_id: str) -> None:
    await hands.end(job_id, outcome=Cancel("no"))


async def _expire_running(hands: Hands, job_id: str) -> None:
    await hands.end(job_id, outcome=Expired())


async def _lose(hands: Hands, job_id: str) -> None:
    await _settle_running(hands, job_id, _stall)


async def _cancel_running(hands: Hands, job_id: str) -> None:
    await _settle_running(hands, job_id, _cancel)


async def _cancel_queued(hands: Hands, job_id: str) -> None:
    await _move_queued(hands, job_id, _cancel)


async def _expire_queued(hands: Hands, job_id: str) -> None:
    await _move_queued(hands, job_id, _expire)


def _stall(job: Job) -> Change:
    return transitions.stall(job, now=NOON + SECOND, limits=Limits(crashes=1))


def _cancel(job: Job) -> Change:
    return transitions.cancel(job, "no", now=NOON + SECOND)


def _expire(job: Job) -> Change:
    return transitions.expire(job, now=NOON + SECOND)


async def _settle_running(
    hands: Hands, job_id: str, decide: Callable[[Job], Change]
) -> None:
    """End a running job as another process would, twice."""
    await hands.take()
    job = await find(hands.store, job_id)
    ended = Settlement(
        job.seq, job.token or "", decide(job), consequences=job.consequences
    )
    await hands.store.settle([ended, ended])


async def _move_queued(
    hands: Hands, job_id: str, decide: Callable[[Job], Change]
) -> None:
    """End a waiting job, twice."""
    job = await find(hands.store, job_id)
    asked = move(job, decide(job))
    await hands.store.move([asked, asked])


End = Callable[[Hands, str], Awaitable[None]]
UNSUCCESSFUL: Final[Mapping[str, tuple[End, str, str]]] = {
    "fails for good": (_fail, "failed", "BAD"),
    "fails too often": (_exhaust, "failed", "BUSY"),
    "expires while it runs": (_expire_running, "failed", "EXPIRED"),
    "expires while it waits": (_expire_queued, "failed", "EXPIRED"),
    "loses its worker too often": (_lose, "failed", "WORKER_LOST"),
    "is cancelled while it runs": (_cancel_running, "cancelled", "CANCELLED"),
    "is cancelled while it waits": (_cancel_queued, "cancelled", "CANCELLED"),
    "cancels itself": (_cancel_inside, "cancelled", "CANCELLED"),
}


class CompletionConformance(WithFlows):
    """A job with a completion has one per generation."""

    async def test_a_completion_is_a_job_of_the_same_owner_with_the_output(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(
            owner=BOB, callback=FOLLOWED, request_id="r_1", traceparent="t_1"
        )
        await store.submit([job])
        await hands.end(job.id, outcome=Done('{"sum":5}'))

        [found] = await completions(store, job.id)
        assert (JobState.QUEUED, BOB, "settle up", "after", 2, "r_1", "t_1") == (
            found.state,
            found.owner,
            found.capability,
            found.queue,
            found.max_attempts,
            found.request_id,
            found.traceparent,
        )
        assert {
            "order": 7,
            "job": {
                "id": job.id,
                "capability": job.capability,
                "state": "succeeded",
                "generation": 0,
                "output": {"sum": 5},
            },
        } == orjson.loads(found.input)
        assert ["job.queued"] == await types(store, found.id)
        assert [] == await told_of(store, job.id), "it has no callback"

    @pytest.mark.parametrize("how", UNSUCCESSFUL)
    async def test_a_job_is_followed_once_however_it_ends(
        self, store: Store, hands: Hands, how: str
    ) -> None:
        end, state, code = UNSUCCESSFUL[how]
        job = a_new_job(callback=FOLLOWED)
        await store.submit([job])
        await end(hands, job.id)

        [found] = await completions(store, job.id)
        told: dict[str, Any] = orjson.loads(found.input)["job"]
        assert (state, 0, code) == (
            told["state"],
            told["generation"],
            told["error"]["code"],
        )
        assert "output" not in told

    async def test_only_an_end_is_followed(self, store: Store, hands: Hands) -> None:
        job, other = a_new_job(callback=FOLLOWED), a_new_job()
        await store.submit([job, other])
        await hands.end(job.id, outcome=HandedBack())
        await hands.end(job.id, outcome=Failed("BUSY", "later"))
        await hands.end(other.id)

        assert [] == await completions(store, job.id)
        assert [] == await completions(store, other.id)

    async def test_a_settlement_that_does_not_hold_is_not_followed(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(callback=FOLLOWED)
        await store.submit([job])
        once = await hands.end_in_vain(job.id)
        early = await completions(store, job.id)
        await store.settle([once, once])

        assert [] == early
        assert [("failed", 0)] == await ends_of(store, job.id)

    async def test_each_generation_is_followed(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(callback=FOLLOWED)
        await store.submit([job])
        await hands.end_thrice(job.id)

        expected = [("failed", 0), ("failed", 1), ("succeeded", 2)]
        assert expected == await ends_of(store, job.id)

    async def test_a_job_may_have_a_callback_and_a_completion(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(callback=with_completion(CALLBACK, COMPLETION))
        told = a_new_job(callback=CALLBACK)
        await store.submit([job, told])
        await hands.end(job.id, told.id, outcome=BAD)

        assert [("failed", 0)] == await ends_of(store, job.id)
        assert [("job.failed", 0)] == await told_of(store, job.id)
        assert [] == await completions(store, told.id)
        assert [("job.failed", 0)] == await told_of(store, told.id)

    async def test_a_completion_is_not_followed(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(callback=FOLLOWED)
        await store.submit([job])
        await hands.end(job.id)
        [claim] = await store.claim("w_1", "t", [ClaimRequest("after", 9)], now=NOON)
        await store.settle([settlement(claim, Done("1"))])

        assert [] == await completions(store, claim.id)
        assert 2 == await store.count(JobFilter())

    async def test_steps_are_followed_however_their_flow_goes(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(
            hands,
            a_new_step("a", callback=FOLLOWED),
            a_new_step("b", "a", callback=FOLLOWED),
            a_new_step("c", "b", callback=FOLLOWED),
        )
        await course.end("a")
        await course.fail("b")
        await course.retry("b")
        await course.end("b")
        await course.end("c")

        jobs = await course.jobs()
        told = {name: await ends_of(store, job.id) for name, job in jobs.items()}
        assert {
            "a": [("succeeded", 0)],
            "b": [("failed", 0), ("succeeded", 1)],
            "c": [("cancelled", 0), ("succeeded", 1)],
        } == told

    async def test_what_is_cancelled_as_a_whole_is_followed_one_by_one(
        self, store: Store, hands: Hands
    ) -> None:
        new = a_new_flow(
            a_new_step("running", callback=FOLLOWED),
            a_new_step("blocked", "running", callback=FOLLOWED),
        )
        member = a_new_job(callback=FOLLOWED)
        batch = await self.open(hands, Members([member], [new]))
        await hands.take()
        await batch.cancel()
        await batch.cancel()

        ids = [job.id for job in (await Course(hands, new.id).jobs()).values()]
        for job_id in (*ids, member.id):
            assert [("cancelled", 0)] == await ends_of(store, job_id)

    async def test_a_step_that_is_given_up_as_it_is_added_is_followed(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("bad"), a_new_step("a"))
        await course.fail("bad")
        added = a_new_step("b", "a", "bad", callback=FOLLOWED)
        await course.end("a", body=adding((await course.flow()).seq, added))

        assert [("cancelled", 0)] == await ends_of(store, added.job.id)

    async def test_no_budget_and_no_cap_refuses_a_completion(
        self, store: Store, hands: Hands
    ) -> None:
        await store.put_budgets([HUNDRED])
        await store.declare([Queue("after", waiting=1)])
        waiting = a_new_job(queue="after", tokens=0)
        job = a_new_job(callback=FOLLOWED, tokens=100)
        await store.submit([waiting, job])
        epoch = (await hands.take())[job.id].events
        await hands.end(job.id, usage=calls(100), epoch=epoch)
        exhausted = await ann(store)

        claim_requests = [ClaimRequest("after", 9)]
        [_, claim] = await store.claim("w_1", "t", claim_requests, now=NOON)
        used = {"usage": calls(30), "epoch": claim.events}
        await store.settle([settlement(claim, GOOD, **used)])

        [found] = await completions(store, job.id)
        assert (found.id, 60) == (claim.id, claim.tokens)
        assert Balance(settled=100) == exhausted
        assert Balance(settled=130, overdraft=30) == await ann(store)

    async def test_a_large_output_makes_the_input_a_reference(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(callback=FOLLOWED)
        await store.submit([job])
        claim = (await hands.take())[job.id]
        text = '"' + "ä" * 40_000 + '"'
        output = Reference(BlobKey(job.id, "output-t"), len(text.encode()))
        key, content = large_input(claim, output.key, text)
        await hands.end(job.id, outcome=Done(str(output)))

        [found] = await completions(store, job.id)
        named = reference(found.input)
        assert named == Reference(key, len(content))
        assert found.id == key.job, "the blob is kept for as long as its job is"
        assert orjson.loads(text) == orjson.loads(content)["job"]["output"]
