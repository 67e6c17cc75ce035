"""Schedules: each tick fires once."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from backburner.domain.errors import IdempotencyConflict
from backburner.domain.jobs.job import Owner
from backburner.domain.queues.schedule import ScheduleState
from backburner.ports.store import Store
from backburner.ports.store.maintenance import JobFilter
from backburner.ports.store.schedules import Firing
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import LetPass, submit

NIGHTLY = ScheduleState("nightly", "greet", "0 3 * * *", "UTC", "skip", NOON)

SAVED = ScheduleState(
    *("saved", "greet", "0 3 * * *", "UTC", "skip", NOON),
    owner=Owner("acme", "ann"),
    input='{"a":1}',
)


def firing(expected: int = NOON, next_at: int = NOON + 5, jobs: int = 1) -> Firing:
    """Return a firing of the nightly schedule."""
    news = [a_new_job() for _ in range(jobs)]
    return Firing("nightly", expected, next_at, expected, news)


class TimetableConformance:
    """`plan`, `schedules`, `fire`, and what operators do with schedules."""

    async def test_what_is_planned_is_listed_by_name(self, store: Store) -> None:
        yearly = ScheduleState("a", "sing", "0 0 1 1 *", "Europe/Berlin", "run_all", 7)
        await store.plan([NIGHTLY, yearly])

        _, schedules = await store.schedules()

        assert [yearly, NIGHTLY] == list(schedules)

    async def test_the_stores_time_comes_with_the_schedules(
        self, store: Store, let_pass: LetPass
    ) -> None:
        before, _ = await store.schedules()
        let_pass(timedelta(seconds=7))
        after, _ = await store.schedules()

        assert 7_000 == after - before

    async def test_a_schedule_whose_times_are_the_same_keeps_its_next_tick(
        self, store: Store
    ) -> None:
        await store.plan([NIGHTLY])
        again = ScheduleState("nightly", "sing", "0 3 * * *", "UTC", "run_all", 99)
        await store.plan([again])

        _, [kept] = await store.schedules()

        assert (NOON, "sing", "run_all") == (kept.next_at, kept.capability, kept.missed)

    @pytest.mark.parametrize(
        ("cron", "timezone"), [("0 4 * * *", "UTC"), ("0 3 * * *", "Asia/Tokyo")]
    )
    async def test_a_schedule_with_other_times_has_another_next_tick(
        self, store: Store, cron: str, timezone: str
    ) -> None:
        await store.plan([NIGHTLY])
        await store.plan([ScheduleState("nightly", "greet", cron, timezone, "skip", 9)])

        _, [changed] = await store.schedules()

        assert 9 == changed.next_at

    async def test_a_tick_that_fires_leaves_a_job_and_the_next_tick(
        self, store: Store
    ) -> None:
        await store.plan([NIGHTLY])
        asked = firing()

        has_fired = await store.fire(asked)

        _, [state] = await store.schedules()
        assert has_fired
        assert (NOON + 5, NOON) == (state.next_at, state.last_at)
        assert 1 == len(await store.find([asked.jobs[0].id]))

    async def test_a_paused_schedule_fires_nothing_until_its_next_time(
        self, store: Store
    ) -> None:
        await store.plan([NIGHTLY])
        known = await store.pause_schedule("nightly", paused=True, next_at=NOON + 1)
        await store.pause_schedule("nightly", paused=True, next_at=NOON + 2)
        fired = await store.fire(firing())
        await store.plan([NIGHTLY])
        _, [paused] = await store.schedules()

        await store.pause_schedule("nightly", paused=False, next_at=NOON + 3)

        _, [resumed] = await store.schedules()
        assert known
        assert not fired
        assert (True, NOON) == (paused.paused, paused.next_at)
        assert (False, NOON + 3) == (resumed.paused, resumed.next_at)
        assert await store.fire(firing(NOON + 3))
        assert not await store.pause_schedule("other", paused=True, next_at=NOON)

    async def test_a_saved_schedule_is_changed_deleted_and_taken_over_by_code(
        self, store: Store
    ) -> None:
        saved = replace(SAVED, cron="0 4 * * *", next_at=NOON + 9, input="2")
        first = await store.save_schedule(SAVED)
        again = await store.save_schedule(saved)
        _, [changed] = await store.schedules()
        gone = await store.delete_schedule("saved")
        await store.save_schedule(SAVED)
        await store.plan([replace(SAVED, owner=None, input=None)])

        refused = await store.save_schedule(saved)

        _, [declared] = await store.schedules()
        assert (True, True, saved, True) == (first, again, changed, gone)
        assert not refused
        assert declared.owner is None
        assert not await store.delete_schedule("saved")

    async def test_a_saved_schedule_that_changed_meanwhile_is_not_fired_as_it_was(
        self, store: Store
    ) -> None:
        await store.save_schedule(SAVED)
        others = [
            replace(SAVED, input='{"a":2}'),
            replace(SAVED, capability="sing"),
            replace(SAVED, owner=Owner("acme", "bob")),
        ]
        for changed in others:
            await store.save_schedule(changed)
            asked = Firing("saved", NOON, NOON + 5, NOON, [a_new_job()], SAVED)
            assert not await store.fire(asked)

        assert await store.fire(asked._replace(saved=changed))
        assert 1 == len(await store.jobs(JobFilter(), before=None, limit=9))

    async def test_a_schedule_that_is_saved_and_declared_at_once_is_the_codes(
        self, store: Store
    ) -> None:
        for n in range(20):
            saved = replace(SAVED, name=f"s{n}")
            declared = replace(saved, owner=None, input=None)
            await asyncio.gather(store.save_schedule(saved), store.plan([declared]))

        _, found = await store.schedules()
        assert {None} == {state.owner for state in found}

    async def test_of_many_who_fire_a_tick_one_does(self, store: Store) -> None:
        await store.plan([NIGHTLY])

        fired = await asyncio.gather(*(store.fire(firing()) for _ in range(8)))

        assert [True] == [has_fired for has_fired in fired if has_fired]
        assert 1 == len(await store.jobs(JobFilter(), before=None, limit=9))

    async def test_a_tick_without_jobs_only_goes_by(self, store: Store) -> None:
        await store.plan([NIGHTLY])

        await store.fire(Firing("nightly", NOON, NOON + 9, None, []))

        _, [state] = await store.schedules()
        assert (NOON + 9, None) == (state.next_at, state.last_at)

    async def test_a_tick_whose_job_is_refused_has_not_fired(
        self, store: Store
    ) -> None:
        await store.plan([NIGHTLY])
        await submit(store, idempotency_key="k", body_hash="one")
        job = a_new_job(idempotency_key="k", body_hash="two")

        with pytest.raises(IdempotencyConflict):
            await store.fire(Firing("nightly", NOON, NOON + 9, NOON, [job]))

        _, [state] = await store.schedules()
        assert NOON == state.next_at
