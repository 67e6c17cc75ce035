"""Storing jobs: all or none, and once per key."""

import asyncio

import pytest

from backburner.domain.errors import IdempotencyConflict
from backburner.domain.events import event
from backburner.domain.jobs.job import JobState, NewJob, Submitted
from backburner.ports.store import Store
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.samples import ANN, BOB, NOON, a_new_job
from backburner.testing.store.acts import (
    DAY,
    find,
    submit,
    types,
)


class SubmitConformance:
    """`submit`: all or none, and once per key."""

    async def test_a_submitted_job_reads_back_as_it_was_asked_for(
        self, store: Store
    ) -> None:
        asked = a_new_job(
            owner=BOB,
            capability="sing",
            queue="loud",
            input='{"text":"la, là 🎶"}',
            max_attempts=7,
            priority=4,
            start_by=NOON + DAY,
            deadline=NOON + 2 * DAY,
            tags=("one", "two words"),
            metadata={"order": "A-1042 🎶", "empty": ""},
            request_id="r_1",
            idempotency_key="k",
            body_hash="h",
        )

        answer = await store.submit([asked])
        job = await find(store, asked.id)

        assert [Submitted(asked.id, JobState.QUEUED)] == list(answer)
        assert JobState.QUEUED is job.state
        assert (0, 0, 0, 0, 1) == (
            job.generation,
            job.attempt,
            job.crashes,
            job.throttled,
            job.events,
        )
        assert asked == NewJob(
            idempotency_key="k",
            **{name: getattr(job, name) for name in _READ_BACK},
        )

    async def test_a_job_for_later_waits_and_one_that_is_due_does_not(
        self, store: Store
    ) -> None:
        later, due = a_new_job(run_at=NOON + 1), a_new_job(run_at=NOON)

        answers = await store.submit([later, due])

        assert [JobState.SCHEDULED, JobState.QUEUED] == [a.state for a in answers]
        assert [event.SCHEDULED] == await types(store, later.id)
        assert [event.QUEUED] == await types(store, due.id)

    async def test_no_jobs_are_no_error(self, store: Store) -> None:
        assert [] == list(await store.submit([]))

    async def test_jobs_that_nobody_stored_are_not_found(self, store: Store) -> None:
        known = await submit(store)

        found = await store.find(["job_unknown", known])

        assert [known] == [job.id for job in found]

    async def test_a_key_stands_for_the_first_job(self, store: Store) -> None:
        first = await submit(store, idempotency_key="k", body_hash="h")

        again = await store.submit([a_new_job(idempotency_key="k", body_hash="h")])

        assert [Submitted(first, JobState.QUEUED, replayed=True)] == list(again)
        assert 1 == len(await store.jobs(JobFilter(), before=None, limit=9))

    async def test_a_key_used_twice_in_one_call_stands_for_one_job(
        self, store: Store
    ) -> None:
        jobs = [a_new_job(idempotency_key="k", body_hash="h") for _ in range(3)]

        answers = await store.submit([a_new_job(), *jobs])

        assert [False, False, True, True] == [a.replayed for a in answers]
        assert {jobs[0].id} == {a.id for a in answers[1:]}

    async def test_a_key_used_at_once_by_many_stands_for_one_job(
        self, store: Store
    ) -> None:
        jobs = [a_new_job(idempotency_key="k", body_hash="h") for _ in range(20)]

        answers = await asyncio.gather(*(store.submit([job]) for job in jobs))

        assert 1 == len({answer[0].id for answer in answers})
        assert 1 == len(await store.jobs(JobFilter(), before=None, limit=99))

    async def test_a_key_is_refused_for_another_body_and_nothing_is_stored(
        self, store: Store
    ) -> None:
        await submit(store, idempotency_key="k", body_hash="h")
        beside, other = a_new_job(), a_new_job(idempotency_key="k", body_hash="other")

        with pytest.raises(IdempotencyConflict):
            await store.submit([beside, other])

        assert [] == list(await store.find([beside.id, other.id]))

    async def test_a_key_is_its_owners_own(self, store: Store) -> None:
        ann = await submit(store, owner=ANN, idempotency_key="k", body_hash="h")
        bob = await submit(store, owner=BOB, idempotency_key="k", body_hash="other")

        assert ann != bob

    @pytest.mark.parametrize(("age", "is_new"), [(DAY, False), (DAY + 1, True)])
    async def test_a_key_is_good_for_a_day(
        self, store: Store, age: int, is_new: bool
    ) -> None:
        first = await submit(store, idempotency_key="k", body_hash="h")

        again = await submit(
            store, idempotency_key="k", body_hash="h", created_at=NOON + age
        )

        assert is_new == (first != again)

    async def test_only_the_caller_in_conflict_sees_it(self, store: Store) -> None:
        await submit(store, idempotency_key="k", body_hash="h")
        good = [a_new_job() for _ in range(5)]
        bad = a_new_job(idempotency_key="k", body_hash="other")

        answers = await asyncio.gather(
            *(store.submit([job]) for job in [*good, bad]), return_exceptions=True
        )

        assert isinstance(answers.pop(), IdempotencyConflict)
        assert [[Submitted(job.id, JobState.QUEUED)] for job in good] == answers

    async def test_an_id_is_taken_once(self, store: Store) -> None:
        known = await submit(store)

        with pytest.raises(Exception, match=r"(?i)unique"):
            await store.submit([a_new_job(id=known), a_new_job(idempotency_key="k")])

        assert 1 == len(await store.jobs(JobFilter(), before=None, limit=9))


_READ_BACK = (
    "id",
    "owner",
    "capability",
    "queue",
    "input",
    "created_at",
    "max_attempts",
    "priority",
    "run_at",
    "start_by",
    "deadline",
    "tags",
    "metadata",
    "request_id",
    "body_hash",
)
