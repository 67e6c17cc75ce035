"""The order of jobs within a queue and priority, and the cap of a share."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from backburner.domain.costs.usage import Usage
from backburner.domain.errors import TooManyWaiting
from backburner.domain.groups.batch import Members
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim, NewJob, Owner, Submitted
from backburner.domain.jobs.outcome import Done, Failed, HandedBack
from backburner.domain.queues.queue import Queue, QueueState
from backburner.domain.queues.schedule import ScheduleState
from backburner.ports.store import Store
from backburner.ports.store.jobs import Amendment
from backburner.ports.store.schedules import Firing
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import (
    BOB,
    NOON,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import (
    NO_RETENTION,
    WithWorkers,
    find,
    move,
    settlement,
    submit,
)

NIGHTLY = ScheduleState("nightly", "greet", "0 3 * * *", "UTC", "skip", NOON)
CAPPED = Queue("default", waiting=3)


def some(count: int, **fields: Any) -> list[NewJob]:
    """Return requests for jobs, Ann's unless another user is named."""
    return [a_new_job(**fields) for _ in range(count)]


def users(claims: Sequence[Claim]) -> str:
    """Return the initials of the claimed jobs' users, in order."""
    return "".join(claim.user[0] for claim in claims)


def used(tokens: int) -> dict[str, Any]:
    """Return the usage of an attempt, for its settlement."""
    return {"usage": [Usage("some-model", tokens, 0)]}


async def in_a_transaction(store: Store, jobs: Sequence[NewJob]) -> None:
    """Submit jobs in a transaction body."""
    body: Callable[[Tx], Sequence[Submitted]] = lambda tx: tx.submit(jobs)  # noqa: E731
    await store.transact(body)


async def with_keys(store: Store, jobs: Sequence[NewJob]) -> None:
    """Submit jobs with idempotency keys."""
    for job in jobs:
        job.idempotency_key = job.id
    await store.submit(jobs)


async def as_steps(store: Store, jobs: Sequence[NewJob]) -> None:
    """Submit jobs as flows of one step each."""
    flows = [
        a_new_flow(a_new_step("one", owner=job.owner), owner=job.owner) for job in jobs
    ]
    await store.submit_flows(flows)


async def as_members(store: Store, jobs: Sequence[NewJob]) -> None:
    """Submit jobs as members of a batch."""
    await store.open_batch(a_new_batch(owner=jobs[0].owner), Members(jobs))


async def as_ticks(store: Store, jobs: Sequence[NewJob]) -> None:
    """Submit jobs like a schedule."""
    await store.plan([NIGHTLY])
    assert await store.fire(Firing("nightly", NOON, NOON + 5, NOON, jobs))


WAYS_IN = pytest.mark.parametrize(
    "send", [in_a_transaction, with_keys, as_steps, as_members, as_ticks]
)
CAPPED_WAYS_IN = pytest.mark.parametrize(
    "send", [in_a_transaction, with_keys, as_steps, as_members]
)


class FairnessConformance(WithWorkers):
    """The order in which jobs of different shares are claimed."""

    async def test_a_job_that_gets_another_priority_is_placed_as_if_it_came_now(
        self, store: Store
    ) -> None:
        await store.submit(some(20))
        await self.claim(store, 20)  # one line has served long, the other nobody
        raised = await submit(store)
        await store.amend(await find(store, raised), Amendment(9))
        await store.submit(some(1, priority=9) + some(1, priority=9, owner=BOB))

        claims = [*await self.claim(store, token="t2")]
        claims += await self.claim(store, token="t3")
        claims += await self.claim(store, token="t4")

        assert raised == claims[0].id
        assert "aba" == users(claims), "it counts for its user there"

    async def test_who_comes_later_is_served_in_turn(self, store: Store) -> None:
        await store.submit(some(6))
        await store.submit(some(3, owner=BOB))

        assert "ababab" == users(await self.claim(store, 6))
        assert "aaa" == users(await self.claim(store, 9))

    async def test_jobs_of_one_share_keep_their_order(self, store: Store) -> None:
        jobs = some(5, tokens=7)
        await store.submit(jobs[:3])
        await store.submit(jobs[3:])

        claimed = await self.claim(store, 5)

        assert [job.id for job in jobs] == [claim.id for claim in claimed]

    @WAYS_IN
    async def test_however_jobs_came_in_they_are_served_in_turn(
        self,
        store: Store,
        send: Callable[[Store, Sequence[NewJob]], Any],
    ) -> None:
        await store.submit(some(6))
        await send(store, some(3, owner=BOB))

        assert Counter("aaabbb") == Counter(users(await self.claim(store, 6)))

    @WAYS_IN
    async def test_however_many_came_in_others_are_served_in_turn(
        self,
        store: Store,
        send: Callable[[Store, Sequence[NewJob]], Any],
    ) -> None:
        await send(store, some(6))
        await store.submit(some(3, owner=BOB))

        assert Counter("aaabbb") == Counter(users(await self.claim(store, 6)))

    async def test_what_one_transaction_submits_bit_by_bit_is_ranked_in_order(
        self, store: Store
    ) -> None:
        jobs = some(4)

        def body(tx: Tx) -> None:
            for job in jobs:
                tx.submit([job])

        await store.transact(body)
        await store.submit(some(2, owner=BOB))

        claimed = await self.claim(store, 4)
        assert Counter("aabb") == Counter(users(claimed))
        assert [job.id for job in jobs[:2]] == [
            c.id for c in claimed if c.user == "ann"
        ]

    async def test_dear_jobs_take_more_of_their_share(self, store: Store) -> None:
        await store.submit(some(10, tokens=100))
        await store.submit(some(10, owner=BOB, tokens=400))

        claimed = users(await self.claim(store, 10))

        assert Counter(a=8, b=2) == Counter(claimed)

    async def test_a_heavy_share_gets_more(self, store: Store) -> None:
        await store.declare([Queue("default", weights={"bob": 3})])
        await store.submit(some(12))
        await store.submit(some(12, owner=BOB))

        assert Counter(a=3, b=9) == Counter(users(await self.claim(store, 12)))

    async def test_a_share_may_have_another_name_than_the_users(
        self, store: Store
    ) -> None:
        await store.submit(some(4))
        await store.submit(some(4, share="night shift"))
        await store.submit(some(4, owner=BOB, share="night shift"))

        claimed = await self.claim(store, 4)

        assert Counter({None: 2, "night shift": 2}) == Counter(c.share for c in claimed)

    async def test_tenants_do_not_share(self, store: Store) -> None:
        await store.submit(some(6, share="ours"))
        other = Owner("umbrella", "zoe")
        await store.submit(some(3, owner=other, share="ours"))

        assert Counter("aaazzz") == Counter(users(await self.claim(store, 6)))

    async def test_priority_goes_before_turn(self, store: Store) -> None:
        await store.submit(some(2, owner=BOB))
        await store.submit(some(4, priority=5))

        assert "aaaabb" == users(await self.claim(store, 6))

    async def test_who_was_away_has_no_credit(self, store: Store) -> None:
        await store.submit(some(20))
        await self.claim(store, 10)
        await store.submit(some(10, owner=BOB))

        assert Counter(a=3, b=3) == Counter(users(await self.claim(store, 6)))

    async def test_who_worked_alone_has_no_debt(self, store: Store) -> None:
        await store.submit(some(10))
        await self.claim(store, 10)
        await store.submit(some(10, owner=BOB))
        await store.submit(some(10))

        served = Counter(users(await self.claim(store, 6)))
        assert 2 <= served["a"], f"Ann paid for what nobody else wanted: {served}"

    async def test_a_job_that_comes_back_keeps_its_place(self, store: Store) -> None:
        await store.submit(some(8))
        [first] = await self.claim(store)
        await self.claim(store, 3)
        await store.settle([settlement(first, HandedBack())])

        assert first.id == (await self.claim(store))[0].id

    async def test_nobody_else_profits_from_a_job_that_comes_back(
        self, store: Store
    ) -> None:
        await store.submit(some(20))
        [first] = await self.claim(store)
        await self.claim(store, 9)
        await store.settle([settlement(first, HandedBack())])
        await store.submit(some(10, owner=BOB))
        await self.claim(store)

        assert Counter(a=3, b=3) == Counter(users(await self.claim(store, 6)))

    async def test_who_used_more_than_was_estimated_waits_for_it(
        self, store: Store
    ) -> None:
        [claim] = await self._one_claimed(store, tokens=100)
        await store.settle([settlement(claim, Done("1"), **used(500))])
        await store.submit(some(9, tokens=100))
        await store.submit(some(9, owner=BOB, tokens=100))

        assert "bbbb" == users(await self.claim(store, 4)), "400 tokens more are four"

    async def test_who_used_less_than_was_estimated_gets_it_back(
        self, store: Store
    ) -> None:
        await store.submit([*some(1, tokens=500), *some(1, owner=BOB, tokens=500)])
        claims = await self.claim(store, 2)
        anns = next(claim for claim in claims if claim.user == "ann")
        await store.settle([settlement(anns, Done("1"), **used(100))])
        await store.submit(some(9, tokens=100))
        await store.submit(some(9, owner=BOB, tokens=100))

        assert "aaaa" == users(await self.claim(store, 4))

    async def test_every_attempt_pays_for_what_it_used(self, store: Store) -> None:
        [claim] = await self._one_claimed(store, tokens=100)
        failed = Failed("BUSY", "later", retryable=True)
        await store.settle([settlement(claim, failed, **used(200))])
        await store.submit(some(9, tokens=100))
        await store.submit(some(9, owner=BOB, tokens=100))

        assert "bb" == users(await self.claim(store, 2)), "200 tokens more are two"

    async def test_a_job_that_says_nothing_of_its_use_is_not_corrected(
        self, store: Store
    ) -> None:
        [claim] = await self._one_claimed(store, tokens=100)
        await store.settle([settlement(claim, Done("1"))])
        await store.submit(some(9, tokens=100))
        await store.submit(some(9, owner=BOB, tokens=100))

        assert Counter("aabb") == Counter(users(await self.claim(store, 4)))

    async def test_use_is_corrected_for_jobs_with_bodies_and_links_too(
        self, store: Store
    ) -> None:
        await store.submit(some(2, tokens=100))
        await store.submit_flows([a_new_flow(a_new_step("one", tokens=100))])
        one, two, step = await self.claim(store, 3)
        await store.settle(
            [
                settlement(one, Done("1"), body=lambda _: None, **used(300)),
                settlement(two, Done("1"), **used(100)),
                settlement(step, Done("1"), **used(300)),
            ]
        )
        await store.submit(some(9, tokens=100))
        await store.submit(some(9, owner=BOB, tokens=100))

        assert "bbbb" == users(await self.claim(store, 4))

    async def test_who_repeats_a_request_pays_once(self, store: Store) -> None:
        job = a_new_job(idempotency_key="k", body_hash="h")
        for _ in range(5):
            await store.submit([job])
        await store.submit(some(4))
        await store.submit(some(4, owner=BOB))

        assert Counter("aabb") == Counter(users(await self.claim(store, 4)))

    async def test_what_was_cancelled_while_it_waited_is_not_paid_for(
        self, store: Store
    ) -> None:
        await store.submit(some(2, owner=BOB))
        for mistake in some(10):
            job = await find(store, (await store.submit([mistake]))[0].id)
            cancelled = transitions.cancel(job, "by mistake", now=NOON)
            assert [True] == list(await store.move([move(job, cancelled)]))
        await store.submit(some(2))

        assert Counter("aabb") == Counter(users(await self.claim(store, 4)))

    async def test_a_share_that_is_forgotten_begins_at_the_front(
        self, store: Store
    ) -> None:
        await store.submit(some(4))
        await self.claim(store, 4)
        await store.prune(keep=NO_RETENTION, now=NOON, limit=9)
        await store.submit(some(4))
        await store.submit(some(4, owner=BOB))

        assert Counter("aabb") == Counter(users(await self.claim(store, 4)))

    async def test_a_share_that_has_jobs_waiting_is_not_forgotten(
        self, store: Store
    ) -> None:
        await store.submit(some(4))
        await store.prune(keep=NO_RETENTION, now=NOON, limit=9)
        await store.submit(some(4))
        await store.submit(some(2, owner=BOB))

        claimed = await self.claim(store, 8)
        assert ["a", "b", "a", "b"] == [*users(claimed)[:4]]

    async def test_a_share_of_which_nothing_waits_is_not_forgotten_yet(
        self, store: Store
    ) -> None:
        await store.submit(some(1))
        await self.claim(store, 1)
        await store.prune(keep=NO_RETENTION, now=NOON, limit=9)
        await store.submit(some(1))
        await store.submit(some(1, owner=BOB))

        assert ["b", "a"] == [*users(await self.claim(store, 2))]

    async def _one_claimed(self, store: Store, **fields: Any) -> Sequence[Claim]:
        """Claim a job of Ann's, and one of Bob's with the same cost."""
        await store.submit([*some(1, **fields), *some(1, owner=BOB, **fields)])
        return [c for c in await self.claim(store, 2) if c.user == "ann"]


class CapConformance(WithWorkers):
    """The maximum number of waiting jobs per share."""

    async def test_weights_and_caps_are_listed(self, store: Store) -> None:
        await store.declare([Queue("default", weights={"ann": 3}, waiting=3)])

        expected = QueueState("default", weights={"ann": 3}, waiting=3)
        assert [expected] == list(await store.queues())

    async def test_who_has_as_many_waiting_as_may_is_refused(
        self, store: Store
    ) -> None:
        await store.declare([CAPPED])
        await store.submit(some(2))

        with pytest.raises(TooManyWaiting) as refused:
            await store.submit(some(2))

        assert (2, 3) == (refused.value.depth, refused.value.cap)
        await store.submit(some(1))
        assert 3 == len(await self.claim(store, 9)), "all or none is stored"

    @CAPPED_WAYS_IN
    async def test_the_cap_holds_however_jobs_come_in(
        self, store: Store, send: Callable[[Store, Sequence[NewJob]], Any]
    ) -> None:
        await store.declare([CAPPED])
        await send(store, some(3))

        with pytest.raises(TooManyWaiting):
            await send(store, some(1))
        assert 3 == len(await self.claim(store, 9))

    async def test_a_schedule_fires_whatever_waits(self, store: Store) -> None:
        await store.declare([CAPPED])
        await store.submit(some(3))
        await as_ticks(store, some(1))

        assert 4 == len(await self.claim(store, 9))

    async def test_other_shares_queues_and_tenants_are_not_counted(
        self, store: Store
    ) -> None:
        await store.declare([CAPPED])
        await store.submit(some(3))

        await store.submit(some(3, owner=BOB))
        await store.submit(some(3, share="mine"))
        await store.submit(some(9, queue="other"))
        await store.submit(some(3, owner=Owner("umbrella", "ann")))

    async def test_all_priorities_count_together(self, store: Store) -> None:
        await store.declare([CAPPED])
        await store.submit(some(3))

        with pytest.raises(TooManyWaiting):
            await store.submit(some(1, priority=5))

    async def test_what_is_scheduled_or_blocked_waits_too(self, store: Store) -> None:
        await store.declare([CAPPED])
        await submit(store, run_at=NOON + 60_000)
        steps = a_new_step("one"), a_new_step("two", "one")
        await store.submit_flows([a_new_flow(*steps)])

        with pytest.raises(TooManyWaiting):
            await store.submit(some(1))

    async def test_what_runs_does_not_wait(self, store: Store) -> None:
        await store.declare([CAPPED])
        await store.submit(some(3))
        await self.claim(store, 3)

        await store.submit(some(3))

    async def test_a_repeat_is_answered_however_many_wait(self, store: Store) -> None:
        await store.declare([CAPPED])
        job = a_new_job(idempotency_key="k", body_hash="h")
        await store.submit([job])
        await store.submit(some(2))

        [again] = await store.submit([job])

        assert (job.id, True) == (again.id, again.replayed)

    async def test_who_is_refused_pays_nothing(self, store: Store) -> None:
        await store.declare([CAPPED])
        await store.submit(some(2))
        for _ in range(5):
            with pytest.raises(TooManyWaiting):
                await store.submit(some(2))
        await store.submit(some(1))
        await store.submit(some(3, owner=BOB))

        assert Counter("aaabbb") == Counter(users(await self.claim(store, 6)))

    async def test_a_cap_that_is_not_declared_any_more_is_none(
        self, store: Store
    ) -> None:
        await store.declare([CAPPED])
        await store.declare([Queue("default")])

        await store.submit(some(9))

    async def test_many_at_once_do_not_pass_the_cap(self, store: Store) -> None:
        await store.declare([CAPPED])

        async def ask(number: int) -> bool:
            send = in_a_transaction if number % 2 else with_keys
            try:
                await send(store, some(1))
            except TooManyWaiting:
                return False
            return True

        admitted = await asyncio.gather(*(ask(number) for number in range(20)))

        assert 3 == sum(admitted)
        assert 3 == len(await self.claim(store, 20))
