"""Settling jobs: by token, once, with all consequences."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
import sqlalchemy as sa

from backburner.domain.errors import Problem, StoreUnavailable
from backburner.domain.events import event
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState, Submitted
from backburner.domain.jobs.outcome import (
    Cancel,
    Done,
    Failed,
    HandedBack,
    Outcome,
    Snooze,
)
from backburner.domain.jobs.transitions import Change
from backburner.ports.store import Store
from backburner.ports.store.transactions import Connection, Tx
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import (
    SECOND,
    Refused,
    WithWorkers,
    find,
    notes,
    settlement,
    types,
    write,
    write_and_refuse,
    written,
)


class SettleConformance(WithWorkers):
    """`settle`: by token, once, with all consequences."""

    @pytest.fixture(autouse=True)
    async def _notes(self, store: Store) -> None:
        await store.transact(
            lambda tx: tx.connection.execute(sa.schema.CreateTable(notes))
        )

    async def test_a_success_keeps_its_output(self, store: Store) -> None:
        claim = await self.claimed(store)
        asked = settlement(claim, Done('{"a":1}'))

        applied = await store.settle([asked])
        job = await find(store, claim.id)

        assert [asked.change] == list(applied)
        assert (JobState.SUCCEEDED, '{"a":1}') == (job.state, job.output)
        assert (None, None, NOON + SECOND) == (job.token, job.worker, job.finished_at)
        assert [event.QUEUED, event.STARTED, event.SUCCEEDED] == await types(
            store, claim.id
        )

    async def test_a_failure_keeps_its_reason(self, store: Store) -> None:
        job = await self.failed(store)
        told = (await store.history(job.id, after=2, limit=9))[0]

        assert (JobState.FAILED, NOON + SECOND) == (job.state, job.finished_at)
        assert Problem("BAD", "no") == job.error
        assert transitions.fingerprint("greet", Problem("BAD", "no")) == job.fingerprint
        assert event.FAILED == told.type
        assert {"code": "BAD", "message": "no", "retryable": False} == told.data[
            "error"
        ]

    async def test_a_failure_worth_another_attempt_waits(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.settle([settlement(claim, Failed("BUSY", "later"))])
        job = await find(store, claim.id)
        told = (await store.history(job.id, after=2, limit=9))[0]

        assert (JobState.SCHEDULED, 1) == (job.state, job.attempt)
        assert NOON + 6 * SECOND == job.run_at == told.data["run_at"]
        assert job.finished_at is None

    async def test_a_wait_that_costs_no_attempt_is_counted(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.settle([settlement(claim, Snooze(timedelta(minutes=1)))])
        job = await find(store, claim.id)

        assert (0, 60 * SECOND) == (job.attempt, job.throttled)

    async def test_a_job_handed_back_may_be_taken_at_once(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.settle([settlement(claim, HandedBack())])

        again = (await self.claim(store, worker="w_2", token="t2"))[0]
        assert (claim.id, 1) == (again.id, again.attempt)

    async def test_another_token_settles_nothing(self, store: Store) -> None:
        claim = await self.claimed(store)
        before = await find(store, claim.id)

        applied = await store.settle(
            [
                settlement(claim._replace(token="stale"), outcome)
                for outcome in (Done("1"), Cancel("no"), Failed("BAD", "no"))
            ]
        )

        assert [None, None, None] == list(applied)
        assert before == await find(store, claim.id)
        assert [event.QUEUED, event.STARTED] == await types(store, claim.id)

    async def test_a_worker_that_wakes_after_its_lease_changes_nothing(
        self, store: Store
    ) -> None:
        zombie = await self.claimed(store)
        await store.settle([settlement(zombie, HandedBack())])
        owner = (await self.claim(store, worker="w_2", token="t2"))[0]

        late = await store.settle([settlement(zombie, Done("1"))])
        own = await store.settle([settlement(owner, Done("2"))])

        assert [None] == list(late)
        assert [JobState.SUCCEEDED] == [c.to for c in own if c]
        assert "2" == (await find(store, zombie.id)).output

    async def test_of_two_settlements_in_one_call_the_first_wins(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        first, second = settlement(claim, Cancel("no")), settlement(claim, Done("1"))

        applied = await store.settle([first, second, second])

        assert [first.change, None, None] == list(applied)
        assert 3 == (await find(store, claim.id)).events

    async def test_of_two_settlements_at_once_one_wins(self, store: Store) -> None:
        claim = await self.claimed(store)

        answers = await asyncio.gather(
            *(store.settle([settlement(claim, Done(str(n)))]) for n in range(9))
        )

        won = [str(n) for n, answer in enumerate(answers) if answer[0] is not None]
        assert [(await find(store, claim.id)).output] == won
        assert 3 == (await find(store, claim.id)).events

    @pytest.mark.parametrize("outcome", [Done("1"), Cancel("no")])
    async def test_a_stale_settlement_beside_it_does_not_stop_the_owners(
        self, store: Store, outcome: Outcome
    ) -> None:
        owner = await self.claimed(store)
        stale = settlement(owner._replace(token="stale"), Done("0"))
        own = settlement(owner, outcome)

        applied = await store.settle([stale, own, stale])

        assert [None, own.change, None] == list(applied)

    async def test_a_body_commits_with_its_settlement(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.settle([settlement(claim, Done("1"), body=write("kept"))])

        assert ["kept"] == list(await written(store))
        assert JobState.SUCCEEDED is (await find(store, claim.id)).state

    async def test_a_body_may_submit(self, store: Store) -> None:
        claim, child = await self.claimed(store), a_new_job()

        def body(tx: Tx) -> None:
            tx.submit([child])

        await store.settle([settlement(claim, Done("1"), body=body)])

        assert JobState.QUEUED is (await find(store, child.id)).state

    async def test_a_body_is_not_kept_without_its_settlement(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        stale = claim._replace(token="stale")

        applied = await store.settle([settlement(stale, Done("1"), body=write("no"))])

        assert [None] == list(applied)
        assert [] == list(await written(store))

    async def test_of_two_settlements_with_bodies_only_the_winners_is_kept(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)

        await store.settle(
            [
                settlement(claim, Done("1"), body=write("first")),
                settlement(claim, Done("2"), body=write("second")),
            ]
        )

        assert ["first"] == list(await written(store))

    async def test_a_body_that_fails_leaves_nothing_and_the_job_goes_another_way(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        instead = settlement(claim, Failed("BUSY", "later")).change
        refused: list[Exception] = []

        def otherwise(error: Exception) -> Change:
            refused.append(error)
            return instead

        body = write_and_refuse("no")
        applied = await store.settle(
            [settlement(claim, Done("1"), body=body, otherwise=otherwise)]
        )

        assert [instead] == list(applied)
        assert ["no"] == [str(error) for error in refused]
        assert [] == list(await written(store))
        assert [event.QUEUED, event.STARTED, event.RETRYING] == await types(
            store, claim.id
        )

    async def test_a_body_that_fails_may_leave_the_job_as_it_is(
        self, store: Store
    ) -> None:
        await store.submit([a_new_job(), a_new_job()])
        first, second = await self.claim(store, 2)
        put_off = settlement(
            first,
            Done("1"),
            body=write_and_refuse("no"),
            otherwise=lambda _: None,
        )

        applied = await store.settle([put_off, settlement(second, Done("2"))])
        (job,) = await store.find([first.id])
        again = await store.settle([put_off._replace(body=write("first"))])

        assert [False, True] == [change is not None for change in applied]
        assert JobState.RUNNING is job.state
        assert [put_off.change] == [*again]
        assert ["first"] == [*await written(store)]

    async def test_a_body_that_fails_does_not_disturb_its_neighbours(
        self, store: Store
    ) -> None:
        await store.submit([a_new_job() for _ in range(3)])
        first, second, third = await self.claim(store, 3)
        instead = settlement(second, Failed("BUSY", "later")).change

        applied = await store.settle(
            [
                settlement(first, Done("1"), body=write("first")),
                settlement(
                    second,
                    Done("2"),
                    body=write_and_refuse("second"),
                    otherwise=lambda _: instead,
                ),
                settlement(third, Done("3")),
            ]
        )

        states = [change.to for change in applied if change]
        assert [JobState.SUCCEEDED, JobState.SCHEDULED, JobState.SUCCEEDED] == states
        assert ["first"] == list(await written(store))

    async def test_a_body_that_fails_with_no_other_way_is_its_callers_failure(
        self, store: Store
    ) -> None:
        await store.submit([a_new_job(), a_new_job()])
        bad, good = await self.claim(store, 2)

        answers = await asyncio.gather(
            store.settle([settlement(bad, Done("1"), body=write_and_refuse("no"))]),
            store.settle([settlement(good, Done("2"), body=write("kept"))]),
            return_exceptions=True,
        )

        assert isinstance(answers[0], Refused)
        assert JobState.RUNNING is (await find(store, bad.id)).state
        assert JobState.SUCCEEDED is (await find(store, good.id)).state
        assert ["kept"] == list(await written(store))

    async def test_a_transaction_returns_what_its_body_returns(
        self, store: Store
    ) -> None:
        job = a_new_job()

        answers = await store.transact(lambda tx: tx.submit([job]))

        assert [Submitted(job.id, JobState.QUEUED)] == list(answers)
        assert job.id == (await find(store, job.id)).id

    async def test_a_transaction_that_fails_is_undone_alone(self, store: Store) -> None:
        job = a_new_job()

        def body(tx: Tx) -> None:
            tx.submit([job])
            write_and_refuse("no")(tx)

        answers = await asyncio.gather(
            store.transact(write("before")),
            store.transact(body),
            store.transact(write("after")),
            return_exceptions=True,
        )

        assert isinstance(answers[1], Refused)
        assert {"before", "after"} == set(await written(store))
        assert [] == list(await store.find([job.id]))

    async def test_a_snapshot_has_what_is_committed_and_cannot_write(
        self, store: Store
    ) -> None:
        def read(connection: Connection) -> Sequence[str]:
            return sorted(connection.execute(sa.select(notes.c.text)).scalars())

        def refuse(connection: Connection) -> None:
            del connection
            raise Refused

        before = await store.snapshot(read)
        await store.transact(write("a"))
        with pytest.raises(StoreUnavailable):
            await store.snapshot(
                lambda connection: connection.execute(notes.insert(), {"text": "b"})
            )
        with pytest.raises(Refused):
            await store.snapshot(refuse)
        between = await store.snapshot(read)
        await store.transact(write("c"))
        many = await asyncio.gather(*(store.snapshot(read) for _ in range(5)))

        assert ([], ["a"]) == (before, between)
        assert [["a", "c"]] * 5 == many, "a read does not keep an old state"
        assert ["a", "c"] == sorted(await written(store))
