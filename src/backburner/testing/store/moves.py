"""Moves of jobs that are not running: by state and generation."""

import asyncio

from backburner.domain.errors import Problem
from backburner.domain.events import event
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.outcome import Failed
from backburner.ports.store import (
    Store,
)
from backburner.ports.store.jobs import Amendment
from backburner.testing.samples import NOON
from backburner.testing.store.acts import (
    DAY,
    SECOND,
    WithWorkers,
    find,
    move,
    retry,
    settlement,
    submit,
    types,
)


class MoveConformance(WithWorkers):
    """`move`: by state and generation."""

    async def test_a_waiting_job_is_moved_from_the_state_it_was_read_in(
        self, store: Store
    ) -> None:
        job = await find(store, await submit(store, run_at=NOON + 1))

        held = await store.move([move(job, transitions.cancel(job, "no", now=NOON))])
        moved = await find(store, job.id)

        assert [True] == list(held)
        assert (JobState.CANCELLED, NOON) == (moved.state, moved.finished_at)
        assert Problem("CANCELLED", "no") == moved.error
        assert [event.SCHEDULED, event.CANCELLED] == await types(store, job.id)

    async def test_a_job_that_moved_meanwhile_is_left(self, store: Store) -> None:
        job = await find(store, await submit(store))
        await self.claim(store)

        held = await store.move([move(job, transitions.cancel(job, "no", now=NOON))])

        assert [False] == list(held)
        assert JobState.RUNNING is (await find(store, job.id)).state
        assert [event.QUEUED, event.STARTED] == await types(store, job.id)

    async def test_a_job_is_reprioritised_and_rescheduled_at_once(
        self, store: Store
    ) -> None:
        job = await find(store, await submit(store))
        later = transitions.reschedule(job, NOON + DAY, now=NOON)

        held = await store.amend(job, Amendment(7, later))
        changed = await find(store, job.id)
        again = await store.amend(job, Amendment(3))
        now = transitions.reschedule(changed, None, now=NOON + SECOND)
        await store.amend(changed, Amendment(change=now))

        queued = await find(store, job.id)
        told = (await store.history(job.id, after=1, limit=1))[0]
        await store.amend(queued, Amendment(3))
        assert (True, False) == (held, again)
        assert (JobState.SCHEDULED, 7, NOON + DAY) == (
            changed.state,
            changed.priority,
            changed.run_at,
        )
        assert (JobState.QUEUED, 7) == (queued.state, queued.priority)
        assert (True, 7) == (told.data["rescheduled"], told.data["priority"])
        assert [
            event.QUEUED,
            event.SCHEDULED,
            event.QUEUED,
            event.CHANGED,
        ] == await types(store, job.id)
        assert [job.id] == [claim.id for claim in await self.claim(store)]

    async def test_a_job_of_higher_priority_is_claimed_first(
        self, store: Store
    ) -> None:
        first, second = await submit(store), await submit(store)

        await store.amend(await find(store, second), Amendment(9))

        claims = await self.claim(store, limit=1)
        assert [second] == [claim.id for claim in claims]
        assert first != second

    async def test_a_dead_letter_is_retried_afresh_in_its_next_generation(
        self, store: Store
    ) -> None:
        job = await self.failed(store, start_by=NOON + 1, deadline=NOON + DAY)

        held = await store.move([retry(job)])
        again = await find(store, job.id)

        assert [True] == list(held)
        assert (JobState.QUEUED, 1, 0) == (
            again.state,
            again.generation,
            again.attempt,
        )
        assert (None, None, None) == (again.finished_at, again.error, again.fingerprint)
        assert (None, None) == (again.start_by, again.deadline)
        told = (await store.history(job.id, after=3, limit=9))[0]
        assert (event.QUEUED, {"generation": 1}) == (told.type, told.data)

    async def test_a_dead_letter_that_is_retried_for_later_waits_for_its_time(
        self, store: Store
    ) -> None:
        job = await self.failed(store, run_at=NOON - DAY, deadline=NOON + DAY)
        later = transitions.retry(job, now=NOON + SECOND, run_at=NOON + DAY)

        held = await store.move([move(job, later)])
        again = await find(store, job.id)
        early = await store.promote(now=NOON + DAY - 1, limit=9)
        due, promoted = (
            await store.next_due(),
            await store.promote(now=NOON + DAY, limit=9),
        )

        assert [True] == list(held)
        assert (JobState.SCHEDULED, NOON + DAY, 1) == (
            again.state,
            again.run_at,
            again.generation,
        )
        assert (None, None) == (again.finished_at, again.deadline)
        assert (0, NOON + DAY, 1) == (early, due, promoted)
        assert [event.SCHEDULED, event.QUEUED] == (await types(store, job.id))[3:]

    async def test_a_dead_letter_of_another_generation_is_left(
        self, store: Store
    ) -> None:
        old = await self.failed(store)
        await store.move([retry(old)])
        claim = (await self.claim(store, token="t2"))[0]
        bad = Failed("BAD", "no", retryable=False)
        await store.settle([settlement(claim, bad)])

        assert [False] == list(await store.move([retry(old)]))
        assert [True] == list(await store.move([retry(await find(store, old.id))]))

    async def test_of_two_moves_of_one_job_one_holds(self, store: Store) -> None:
        job = await self.failed(store)

        together = await store.move([retry(job), retry(job)])
        apart = await asyncio.gather(store.move([retry(job)]), store.move([retry(job)]))

        assert [True, False] == list(together)
        assert [[False], [False]] == [list(held) for held in apart]
        assert 1 == (await find(store, job.id)).generation

    async def test_a_stale_move_beside_it_does_not_stop_the_right_one(
        self, store: Store
    ) -> None:
        job = await self.failed(store)
        stale = retry(job)._replace(generation=7)

        held = await store.move([stale, retry(job)])

        assert [False, True] == list(held)
