"""Retention policies of queues."""

from datetime import timedelta
from typing import Any

import pytest

from backburner.domain.groups.batch import Members
from backburner.domain.jobs.job import Claim
from backburner.domain.jobs.outcome import Done, Failed
from backburner.domain.queues.queue import Keep, Queue
from backburner.ports.store import Store
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.maintenance import Retention
from backburner.testing.samples import (
    NOON,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import DAY, SECOND, WithWorkers, settlement

HOUR = 3_600_000
AN_HOUR = timedelta(hours=1)
GENERAL = Retention(timedelta(days=7), timedelta(days=14), timedelta(days=7))
BAD = Failed("BAD", "no", retryable=False)


class KeepConformance(WithWorkers):
    """`Queue(keep=…)` and `prune`."""

    async def _ended(self, store: Store, outcome: Any = None, **fields: Any) -> str:
        """Return the id of a job that ended a second after noon."""
        queue = fields.get("queue", "default")
        await store.submit([a_new_job(**{"kept": True} | fields)])
        [claim] = await store.claim("w_1", "t1", [ClaimRequest(queue, 1)], now=NOON)
        await store.settle([settlement(claim, outcome or Done("1"))])
        return claim.id

    async def _left(self, store: Store, ids: list[str], at: int) -> list[str]:
        """Prune at a time; return the jobs that are left."""
        await store.prune(keep=GENERAL, now=at, limit=100)
        return [job.id for job in await store.find(ids)]

    async def test_a_policy_is_declared_and_listed(self, store: Store) -> None:
        keep = Keep(AN_HOUR, timedelta(days=2), 10, 50)
        await store.declare([Queue("default", keep=keep)])

        assert [keep] == [queue.keep for queue in await store.queues()]
        await store.declare([Queue("default")])
        assert [None] == [queue.keep for queue in await store.queues()]

    @pytest.mark.parametrize("outcome", [Done("1"), BAD])
    async def test_a_job_goes_at_its_queues_age(
        self, store: Store, outcome: Any
    ) -> None:
        keep = Keep(succeeded=AN_HOUR, failed=2 * AN_HOUR)
        await store.declare([Queue("default", keep=keep)])
        ids = [await self._ended(store, outcome), await self._ended(store, kept=False)]
        end = NOON + SECOND + (HOUR if isinstance(outcome, Done) else 2 * HOUR)

        assert 2 == len(await self._left(store, ids, end - 1))
        assert ids[1:] == await self._left(store, ids, end)

    async def test_a_job_is_kept_longer_than_others_if_its_queue_says_so(
        self, store: Store
    ) -> None:
        await store.declare([Queue("default", keep=Keep(succeeded=timedelta(days=30)))])
        ids = [await self._ended(store), await self._ended(store, kept=False)]

        assert ids[:1] == await self._left(store, ids, NOON + 29 * DAY)
        assert [] == await self._left(store, ids, NOON + 31 * DAY)

    async def test_the_newest_are_kept_up_to_a_count(self, store: Store) -> None:
        await store.declare([Queue("default", keep=Keep(succeeded_count=2))])
        ids = [await self._ended(store) for _ in range(4)]
        failed = [await self._ended(store, BAD) for _ in range(3)]

        soon = await self._left(store, ids, NOON + 5 * 60 * SECOND)
        assert 4 == len(soon), "readers may still come"
        assert ids[2:] == await self._left(store, ids, NOON + HOUR)
        assert 3 == len(await self._left(store, failed, NOON + HOUR))

    async def test_a_job_with_a_key_stays_as_long_as_its_key_is_good(
        self, store: Store
    ) -> None:
        keep = Keep(succeeded=AN_HOUR, succeeded_count=1)
        await store.declare([Queue("default", keep=keep)])
        job_id = await self._ended(store, idempotency_key="k", body_hash="b")
        other = await self._ended(store)

        assert [job_id] == await self._left(store, [job_id, other], NOON + 23 * HOUR)
        assert [] == await self._left(store, [job_id], NOON + 25 * HOUR)

    async def test_a_member_stays_as_long_as_its_batch(self, store: Store) -> None:
        await store.declare([Queue("default", keep=Keep(succeeded=AN_HOUR))])
        member = a_new_job(kept=True)
        await store.open_batch(a_new_batch(sealed=True), Members([member]))
        [claim] = await self.claim(store, 1)
        await store.settle([settlement(claim, Done("1"))])

        assert [member.id] == await self._left(store, [member.id], NOON + 2 * HOUR)

    async def test_a_queue_without_a_policy_any_more_keeps_as_all_do(
        self, store: Store
    ) -> None:
        await store.declare([Queue("default", keep=Keep(succeeded=AN_HOUR))])
        job_id = await self._ended(store)
        await store.declare([Queue("default")])

        assert [job_id] == await self._left(store, [job_id], NOON + 6 * DAY)
        assert [] == await self._left(store, [job_id], NOON + 8 * DAY)

    async def test_pruning_in_small_steps_deletes_all_that_may_go(
        self, store: Store
    ) -> None:
        await store.declare([Queue("default", keep=Keep(succeeded=AN_HOUR))])
        ids = [await self._ended(store) for _ in range(5)]

        sizes = [
            len(await store.prune(keep=GENERAL, now=NOON + DAY, limit=2))
            for _ in range(3)
        ]

        assert [2, 2, 1] == sizes
        assert [] == await store.find(ids)

    async def _flow(self, store: Store, **fields: Any) -> list[str]:
        """Run a flow of two steps in two queues; return its steps' ids."""
        second: dict[str, Any] = {"queue": "other", "kept": True} | fields
        steps = [a_new_step("a", kept=True), a_new_step("b", "a", **second)]
        await store.submit_flows([a_new_flow(*steps)])
        for queue in ("default", second["queue"]):
            claim: Claim
            [claim] = await store.claim("w_1", "t1", [ClaimRequest(queue, 1)], now=NOON)
            await store.settle([settlement(claim, Done("1"))])
        return [step.job.id for step in steps]

    async def test_a_flow_goes_once_every_steps_queue_allows_it(
        self, store: Store
    ) -> None:
        hours = {"default": 1, "other": 3}
        await store.declare(
            [
                Queue(name, keep=Keep(succeeded=hours * AN_HOUR))
                for name, hours in hours.items()
            ]
        )
        ids = await self._flow(store)

        assert ids == await self._left(store, ids, NOON + 2 * HOUR)
        assert [] == await self._left(store, ids, NOON + 4 * HOUR)

    async def test_a_queue_without_a_policy_keeps_the_flow_as_all_do(
        self, store: Store
    ) -> None:
        await store.declare([Queue("default", keep=Keep(succeeded=AN_HOUR))])
        ids = await self._flow(store, kept=False)

        assert ids == await self._left(store, ids, NOON + 6 * DAY)
        assert [] == await self._left(store, ids, NOON + 8 * DAY)

    async def test_the_newest_flows_are_kept_up_to_a_count(self, store: Store) -> None:
        keep = Keep(succeeded_count=1)
        await store.declare([Queue(name, keep=keep) for name in ("default", "other")])
        old, new = await self._flow(store), await self._flow(store)

        assert new == await self._left(store, [*old, *new], NOON + HOUR)
