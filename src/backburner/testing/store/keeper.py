"""Lists of jobs, due jobs and old jobs."""

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from backburner.domain.errors import StoreUnavailable
from backburner.domain.events import event
from backburner.domain.jobs.job import JobState, Owner, Tenant, Visibility
from backburner.domain.jobs.outcome import Done, HandedBack
from backburner.domain.jobs.transitions import cancel
from backburner.domain.queues.queue import Queue
from backburner.ports.store import Store
from backburner.ports.store.maintenance import JobFilter, Retention
from backburner.testing.samples import ANN, BOB, NOON, a_new_job
from backburner.testing.store.acts import (
    DAY,
    NO_RETENTION,
    SECOND,
    WEEK,
    WithWorkers,
    find,
    move,
    settlement,
    submit,
    types,
)

HOUR = 3_600 * SECOND
ODD_METADATA = {
    "order": "A-1042",
    "a_b%": "_100%",
    "a note of theirs": "two words",
    "path.$.order[0]": "$.order",
    'a "name"': 'a "text", 1',
    "it's": "x' OR '1'='1",
    "back\\slash": "C:\\new\\",
    "a=b": "c=d=e",
    "ключ": "ж",
    "emoji 🎶": "👩‍👩‍👧 🎶",
    "lines": "one\ntwo\t\u202e\x1f",
    "json": '{"order":"A-1042"}',
    "separators": '","',
    ":": ":",
    "\u00e9": "e\u0301",
}
"""Metadata that a search in stored text might find where it is not, or not find."""


class KeeperConformance(WithWorkers):
    """`MaintenanceStore`: lists, due jobs and old jobs."""

    async def test_jobs_are_listed_newest_first_in_pages(self, store: Store) -> None:
        ids = [await submit(store) for _ in range(5)]

        first = await store.jobs(JobFilter(), before=None, limit=2)
        second = await store.jobs(JobFilter(), before=first[-1].seq, limit=2)
        third = await store.jobs(JobFilter(), before=second[-1].seq, limit=2)

        listed = [job.id for job in (*first, *second, *third)]
        assert list(reversed(ids)) == listed

    async def test_a_job_that_goes_from_state_to_state_meanwhile_is_listed_once(
        self, store: Store
    ) -> None:
        ids = [await submit(store) for _ in range(5)]
        both = JobFilter(states=frozenset({JobState.QUEUED, JobState.RUNNING}))
        is_over = False

        async def work() -> None:
            for n in itertools.count():
                claims = await self.claim(store, 5, token=f"t{n}")
                await store.settle([settlement(one, HandedBack()) for one in claims])
                if is_over:
                    return

        working = asyncio.create_task(work())
        pages = [await store.jobs(both, before=None, limit=9) for _ in range(100)]
        walks = [
            await store.walk(both, before=None, limit=9, reach=9) for _ in range(100)
        ]
        counts = {await store.count(both) for _ in range(100)}
        is_over = True
        await working

        expected = {tuple(reversed(ids))}
        assert expected == {tuple(job.id for job in page) for page in pages}
        assert expected == {tuple(job.id for job in page) for page, _ in walks}
        assert {5} == counts

    @pytest.mark.parametrize("owner", [None, ANN, Tenant(ANN.tenant)])
    @pytest.mark.parametrize("oldest_first", [False, True])
    @pytest.mark.parametrize(
        "asked",
        [
            JobFilter(tag="rare"),
            JobFilter(state=JobState.CANCELLED),
            JobFilter(states=frozenset({JobState.CANCELLED, JobState.QUEUED})),
            JobFilter(tag="rare", since=NOON),
            JobFilter(metadata={"order": "rare"}),
        ],
    )
    async def test_a_walk_in_short_steps_finds_what_a_list_finds(
        self,
        store: Store,
        owner: Visibility | None,
        oldest_first: bool,
        asked: JobFilter,
    ) -> None:
        where = replace(asked, owner=owner, oldest_first=oldest_first)
        for place in range(14):
            tags = ("rare",) if place % 5 == 0 else ("t",)
            owned = BOB if place == 7 else ANN
            metadata = {"order": tags[0]}
            job_id = await submit(store, tags=tags, owner=owned, metadata=metadata)
            if place % 3 == 0:
                job = await find(store, job_id)
                await store.move([move(job, cancel(job, "no", now=NOON))])
        listed = await store.jobs(where, before=None, limit=99)

        before, walked, steps = None, list[str](), 0
        while True:
            page, onward = await store.walk(where, before=before, limit=9, reach=3)
            walked += [job.id for job in page]
            steps += 1
            if onward is None and len(page) < 9:
                break
            before = page[-1].seq if onward is None else onward

        counted, is_all = await store.count_within(where, most=99, reach=99)
        few, _ = await store.count_within(where, most=99, reach=3)
        assert [job.id for job in listed] == walked
        assert (len(listed), True) == (counted, is_all)
        # A store may find an owner's cancelled jobs by an index.
        is_found = asked.state is JobState.CANCELLED and owner == ANN
        assert is_found or steps > 2
        assert is_found or few < len(listed)

    @pytest.mark.parametrize("owner", [None, ANN, Tenant(ANN.tenant)])
    @pytest.mark.parametrize("oldest_first", [False, True])
    async def test_a_walk_looks_at_the_jobs_of_the_time_that_is_asked_for(
        self, store: Store, owner: Visibility | None, oldest_first: bool
    ) -> None:
        ids = [
            await submit(store, created_at=NOON + place * 2 * HOUR)
            for place in range(20)
        ]
        where = JobFilter(
            owner,
            since=NOON + 6 * HOUR,
            until=NOON + 20 * HOUR,
            oldest_first=oldest_first,
        )
        reach = 9  # far fewer than there are before and after

        walked, onward = await store.walk(where, before=None, limit=99, reach=reach)
        last = await find(store, ids[5])
        rest, _ = await store.walk(where, before=last.seq, limit=99, reach=reach)
        counted = await store.count_within(where, most=99, reach=reach)
        late = replace(where, since=None)
        few = await store.count_within(late, most=99, reach=reach)

        expected = ids[3:10] if oldest_first else ids[9:2:-1]
        assert expected == [job.id for job in walked]
        assert expected[expected.index(ids[5]) + 1 :] == [job.id for job in rest]
        assert onward is None
        assert (7, True) == counted
        assert (8, False) == few  # one that was looked at is within an hour after it

    @pytest.mark.parametrize("owner", [None, ANN, Tenant(ANN.tenant)])
    @pytest.mark.parametrize("text", ["x' OR '1'='1", "queued' OR 'a'='a", "lost"])
    async def test_a_text_that_is_no_state_gets_into_no_statement(
        self, store: Store, text: Any, owner: Visibility | None
    ) -> None:
        await submit(store)
        states = frozenset[Any]({JobState.FAILED, text})
        refused = pytest.raises(ValueError, match="is not a valid JobState")

        for where in (JobFilter(state=text), JobFilter(states=states)):
            asked = replace(where, owner=owner)
            with refused:
                await store.jobs(asked, before=None, limit=9)
            with refused:
                await store.walk(asked, before=None, limit=9, reach=3)
            with refused:
                await store.count(asked, most=9)
            with refused:
                await store.count_within(asked, most=9, reach=3)

    async def test_a_list_carries_neither_inputs_nor_outputs(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store, input='{"a":1}')
        await store.settle([settlement(claim, Done('{"b":2}'))])

        [listed] = await store.jobs(JobFilter(), before=None, limit=9)
        found = await find(store, claim.id)

        assert ("", None) == (listed.input, listed.output)
        assert ('{"a":1}', '{"b":2}') == (found.input, found.output)
        assert listed == replace(found, input="", output=None)

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (JobFilter(), 2),
            (JobFilter(owner=BOB), 1),
            (JobFilter(state=JobState.SCHEDULED), 1),
            (JobFilter(state=JobState.FAILED), 0),
            (JobFilter(capability="sing"), 1),
            (JobFilter(queue="loud"), 1),
            (JobFilter(tag="a_b%"), 1),
            (JobFilter(tag="two"), 1),
            (JobFilter(tag="tw"), 0),
            (JobFilter(tag="TWO"), 0),
            (JobFilter(tag="axb%"), 0),
            (JobFilter(fingerprint="f"), 0),
            (JobFilter(since=NOON + 1), 1),
            (JobFilter(until=NOON + 1), 1),
            (JobFilter(since=NOON, until=NOON + 2), 2),
            (JobFilter(until=NOON), 0),
            (JobFilter(states=frozenset({JobState.QUEUED, JobState.SCHEDULED})), 2),
            (JobFilter(states=frozenset({JobState.FAILED, JobState.SCHEDULED})), 1),
            (JobFilter(states=frozenset({JobState.FAILED, JobState.CANCELLED})), 0),
            (JobFilter(owner=BOB, state=JobState.QUEUED), 0),
        ],
    )
    async def test_jobs_are_listed_by_what_is_asked(
        self, store: Store, where: JobFilter, expected: int
    ) -> None:
        await submit(store)
        await submit(
            store,
            owner=BOB,
            capability="sing",
            queue="loud",
            tags=("a_b%", "two"),
            created_at=NOON + 1,
            run_at=NOON + 2,
        )

        assert expected == len(await store.jobs(where, before=None, limit=9))

    @pytest.mark.parametrize("name", ODD_METADATA)
    async def test_jobs_are_found_by_metadata_exactly(
        self, store: Store, name: str
    ) -> None:
        text = ODD_METADATA[name]
        mine = await submit(store, metadata={"first": "1", name: text, "last": ""})
        pair = {name: text}
        await submit(store)
        await submit(store, metadata={"first": text, "note": f',"{name}":"{text}"'})
        for other in {f"{text} ", f" {text}", text[:-1], text.swapcase()} - {text}:
            await submit(store, metadata={name: other})
        for other in {f"{name} ", f" {name}", f",{name}", name.swapcase()} - {name}:
            await submit(store, metadata={other: text})

        async def found(metadata: dict[str, str]) -> list[str]:
            where = JobFilter(metadata=metadata)
            listed = await store.jobs(where, before=None, limit=99)
            walked, _ = await store.walk(where, before=None, limit=99, reach=99)
            assert listed == walked
            assert len(listed) == await store.count(where)
            assert (len(listed), True) == await store.count_within(
                where, most=99, reach=99
            )
            return [job.id for job in listed]

        assert [mine] == await found(pair)
        assert [mine] == await found({**pair, "first": "1", "last": ""})
        assert [] == await found({**pair, "first": "2"})

    async def test_dead_letters_are_grouped_by_what_went_wrong(
        self, store: Store
    ) -> None:
        first = await self.failed(store)
        second = await self.failed(store)
        other = await self.failed(store, capability="sing")
        await self.failed(store, owner=BOB)
        await submit(store)

        groups = {g.capability: g for g in await store.failures(ANN, limit=9)}

        assert {"greet", "sing"} == set(groups)
        greet = groups["greet"]
        assert (first.fingerprint, "BAD", 2) == (
            greet.fingerprint,
            greet.code,
            greet.size,
        )
        assert (NOON + SECOND, NOON + SECOND) == (greet.first_at, greet.last_at)
        assert greet.sample_id in {first.id, second.id}
        assert "no" == greet.message
        assert other.id == groups["sing"].sample_id
        assert 1 == len(await store.failures(ANN, limit=1))

    async def test_what_happened_is_counted_by_minute_and_owner(
        self, store: Store
    ) -> None:
        await self.failed(store)
        await self.failed(store, owner=BOB)
        await submit(store)

        mine = await store.activity(ANN, since=NOON)
        ours = await store.activity(Tenant(ANN.tenant), since=NOON)
        later = await store.activity(ANN, since=NOON + DAY)
        hit = await store.impacts(Tenant(ANN.tenant))

        assert [(NOON, 2, 0, 1, 0)] == [tuple(one) for one in mine.minutes]
        assert [(NOON, 3, 0, 2, 0)] == [tuple(one) for one in ours.minutes]
        assert ([], NOON, False) == (list(later.minutes), mine.since, mine.is_capped)
        assert [(2, 2, 0)] == [tuple(one) for one in hit.values()]
        assert {} == await store.impacts(Tenant("elsewhere"))

    async def test_arrivals_and_ends_are_counted_by_queue(self, store: Store) -> None:
        await self.failed(store)
        await submit(store)
        await submit(store, queue="other", owner=BOB)
        later = await store.throughput(since=NOON + DAY)
        recent = await store.throughput(since=NOON)

        assert {"default": (2, 1), "other": (1, 0)} == recent
        assert {} == later

    async def test_the_jobs_of_a_worker_are_found(self, store: Store) -> None:
        await submit(store)
        theirs = (await self.claim(store, worker="w_2"))[0]
        await self.failed(store)
        await submit(store)
        of_worker = JobFilter(state=JobState.RUNNING, worker="w_2")
        owned = replace(of_worker, owner=ANN)
        walked, _ = await store.walk(of_worker, before=None, limit=9, reach=9)

        for where in (of_worker, owned):
            listed = await store.jobs(where, before=None, limit=9)
            assert [theirs.id] == [job.id for job in listed]
            assert 1 == await store.count(where)
        assert [theirs.id] == [job.id for job in walked]
        none = replace(of_worker, worker="w_1")
        assert [] == list(await store.jobs(none, before=None, limit=9))

    async def test_a_tenants_view_shows_all_its_users_and_nobody_elses(
        self, store: Store
    ) -> None:
        other = replace(BOB, tenant="elsewhere")
        mine = [(await self.failed(store, owner=owner)).id for owner in (ANN, BOB)]
        await self.failed(store, owner=other)
        tenant = Tenant(ANN.tenant)

        listed = await store.jobs(JobFilter(owner=tenant), before=None, limit=9)
        groups = await store.failures(tenant, limit=9)
        streamed = (await store.stream(tenant, after=0, limit=99)).events
        own = (await store.stream(ANN, after=0, limit=99)).events

        assert set(mine) == {job.id for job in listed}
        assert [2] == [group.size for group in groups]
        assert set(mine) == {told.subject for told in streamed}
        assert {mine[0]} == {told.subject for told in own}

    async def test_a_small_tenants_jobs_are_listed_after_many_of_others(
        self, store: Store
    ) -> None:
        owners = [Owner("tiny", "tim"), Owner("tiny", "tom"), Owner("tiny", "tim")]
        ids = [await submit(store, owner=owner) for owner in owners]
        await store.submit([a_new_job(owner=BOB) for _ in range(1_200)])

        where = JobFilter(owner=Tenant("tiny"))
        first = await store.jobs(where, before=None, limit=2)
        rest = await store.jobs(where, before=first[-1].seq, limit=2)

        assert list(reversed(ids)) == [job.id for job in (*first, *rest)]

    async def test_what_matches_is_counted(self, store: Store) -> None:
        for owner in (ANN, ANN, BOB):
            await submit(store, owner=owner)

        assert 3 == await store.count(JobFilter())
        assert 2 == await store.count(JobFilter(owner=ANN))
        assert 0 == await store.count(JobFilter(state=JobState.FAILED))
        assert 2 == await store.count(JobFilter(), most=2)
        assert 3 == await store.count(JobFilter(), most=9)

    @pytest.mark.parametrize("owner", [None, ANN, Tenant(ANN.tenant)])
    @pytest.mark.parametrize("state", [None, JobState.QUEUED])
    async def test_jobs_are_listed_oldest_first_in_pages(
        self, store: Store, owner: Visibility | None, state: JobState | None
    ) -> None:
        ids = [await submit(store) for _ in range(5)]
        where = JobFilter(owner=owner, state=state, oldest_first=True)

        first = await store.jobs(where, before=None, limit=3)
        rest = await store.jobs(where, before=first[-1].seq, limit=3)

        assert ids == [job.id for job in (*first, *rest)]

    async def test_what_waits_of_a_share_in_a_capped_queue_is_counted(
        self, store: Store
    ) -> None:
        await store.declare([Queue("q", waiting=9)])
        for owner in (ANN, ANN, BOB):
            await submit(store, owner=owner, queue="q")

        assert 2 == await store.crowd(a_new_job(owner=ANN, queue="q"))
        assert 1 == await store.crowd(a_new_job(owner=BOB, queue="q"))
        assert 0 == await store.crowd(a_new_job(owner=ANN, queue="other"))

    async def test_dead_letters_are_listed_by_their_fingerprint(
        self, store: Store
    ) -> None:
        job = await self.failed(store)
        await self.failed(store, capability="sing")

        where = JobFilter(state=JobState.FAILED, fingerprint=job.fingerprint)
        found = await store.jobs(where, before=None, limit=9)

        assert [job.id] == [like.id for like in found]

    async def test_live_jobs_are_counted_by_queue_and_state(self, store: Store) -> None:
        await self.claimed(store, created_at=NOON - 2)
        finished = await self.claimed(store)
        await store.settle([settlement(finished, Done("1"))])
        await submit(store, queue="loud", created_at=NOON - 1)
        await submit(store, queue="loud")
        await submit(store, queue="loud", run_at=NOON + 9)

        depths = await store.depths()

        assert {
            ("default", JobState.RUNNING, 1),
            ("loud", JobState.QUEUED, 2),
            ("loud", JobState.SCHEDULED, 1),
        } == {(queue, state, count) for queue, state, count, _ in depths}
        assert [NOON - 1] == [d[3] for d in depths if d[1] is JobState.QUEUED]

    async def test_what_waits_is_counted_by_queue_up_to_a_cap(
        self, store: Store
    ) -> None:
        await self.claimed(store)
        for queue, count in (("alto", 1), ("bass", 4), ("tenor", 3)):
            for _ in range(count):
                await submit(store, queue=queue)
        await submit(store, queue="later", run_at=NOON + 9)

        assert {"alto": 1, "bass": 3, "tenor": 3} == await store.waiting(3)

    async def test_where_nothing_waits_nothing_is_counted(self, store: Store) -> None:
        await self.claimed(store)

        assert {} == await store.waiting(3)

    async def test_dead_letters_are_counted(self, store: Store) -> None:
        await self.claimed(store)
        await self.failed(store)
        await self.failed(store, capability="sing")

        assert 2 == await store.dead_letters()

    async def test_what_is_due_is_queued_the_earliest_first(self, store: Store) -> None:
        late = await submit(store, run_at=NOON + 3)
        second = await submit(store, run_at=NOON + 2)
        first = await submit(store, run_at=NOON + 1)

        one = await store.promote(now=NOON + 2, limit=1)
        queued = (await find(store, first)).state
        rest = await store.promote(now=NOON + 2, limit=9)

        assert (1, JobState.QUEUED, 1) == (one, queued, rest)
        assert [event.SCHEDULED, event.QUEUED] == await types(store, second)
        assert JobState.SCHEDULED is (await find(store, late)).state
        assert NOON + 2 == (await self.claim(store))[0].ready_at

    async def test_the_next_that_is_due_is_known(self, store: Store) -> None:
        nothing = await store.next_due()
        await submit(store)
        await submit(store, run_at=NOON + 5)
        await submit(store, run_at=NOON + 3)

        assert nothing is None
        assert NOON + 3 == await store.next_due()

    @pytest.mark.parametrize("limit", ["start_by", "deadline"])
    async def test_what_waits_past_its_time_is_overdue(
        self, store: Store, limit: str
    ) -> None:
        queued = await submit(store, **{limit: NOON + 1})
        scheduled = await submit(store, run_at=NOON + 9, **{limit: NOON + 2})
        await submit(store, **{limit: NOON + 3})
        await submit(store)

        overdue = await store.overdue(now=NOON + 2, limit=9)

        assert [queued, scheduled] == [job.id for job in overdue]
        assert 1 == len(await store.overdue(now=NOON + 2, limit=1))

    async def test_what_has_started_must_only_keep_its_deadline(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store, start_by=NOON + 1, deadline=NOON + 5)
        running = await store.overdue(now=NOON + 9, limit=9)
        await store.settle([settlement(claim, HandedBack())])

        assert [] == list(running)
        assert [] == list(await store.overdue(now=NOON + 4, limit=9))
        assert [claim.id] == [
            job.id for job in await store.overdue(now=NOON + 5, limit=9)
        ]

    async def test_finished_jobs_are_deleted_when_their_time_is_over(
        self, store: Store
    ) -> None:
        failed = await self.failed(store)
        claim = await self.claimed(store)
        await store.settle([settlement(claim, Done("1"))])
        waiting = await submit(store)
        keep = Retention(succeeded=WEEK, failed=2 * WEEK, cancelled=WEEK)
        week = WEEK // timedelta(milliseconds=1)

        early = await store.prune(keep=keep, now=NOON + week, limit=9)
        due = await store.prune(keep=keep, now=NOON + week + SECOND, limit=9)
        left = await store.find([failed.id, claim.id, waiting])

        assert ([], [claim.id]) == (list(early), list(due))
        assert {failed.id, waiting} == {job.id for job in left}
        assert [] == list(await store.history(claim.id, after=0, limit=9))
        assert 3 == len(await store.history(failed.id, after=0, limit=9))

    async def test_no_more_are_deleted_than_asked_for(self, store: Store) -> None:
        for _ in range(3):
            await self.failed(store)

        pruned = await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=2)

        assert 2 == len(pruned)
        assert 1 == len(await store.jobs(JobFilter(), before=None, limit=9))

    async def test_a_job_is_kept_while_its_key_is_good(self, store: Store) -> None:
        await self.failed(store, idempotency_key="k", body_hash="h")

        early = await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)
        due = await store.prune(keep=NO_RETENTION, now=NOON + DAY + 1, limit=9)

        assert (0, 1) == (len(early), len(due))

    async def test_an_events_number_is_never_given_twice(self, store: Store) -> None:
        await self.failed(store)
        before = await store.latest()
        await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)

        job_id = await submit(store)

        news = await store.history(job_id, after=0, limit=9)
        assert before < news[0].seq

    async def test_the_end_of_the_log_does_not_go_back(self, store: Store) -> None:
        await self.failed(store)
        before = await store.latest()

        await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)

        assert before <= await store.latest()

    async def test_a_jobs_number_is_never_given_twice(self, store: Store) -> None:
        pruned = await self.failed(store)
        await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)

        [job] = await store.find([await submit(store)])

        assert pruned.seq < job.seq

    async def test_a_store_that_works_answers_a_ping(self, store: Store) -> None:
        assert await store.ping() is None  # type: ignore[func-returns-value]

    async def test_migrating_what_is_up_to_date_changes_nothing(
        self, store: Store
    ) -> None:
        before = await store.version()

        migrated = await store.migrate()

        assert before is not None
        assert (before, before) == tuple(migrated)
        assert before == await store.version()

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        await store.close()

        with pytest.raises(StoreUnavailable):
            await store.ping()
        with pytest.raises(StoreUnavailable):
            await store.find(["job_1"])
