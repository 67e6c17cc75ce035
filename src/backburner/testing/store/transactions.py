"""Transactions of handlers and applications: fenced by a claim, and limited in time."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
import sqlalchemy as sa

from backburner.domain.errors import ClaimLost, TransactionTooLong
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim, JobState
from backburner.domain.jobs.outcome import Done, HandedBack
from backburner.ports.store import Store
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import (
    SECOND,
    Refused,
    WithWorkers,
    find,
    notes,
    settlement,
    write,
    write_and_refuse,
    written,
)

SHORT = 0.2
"""The time limit, in seconds, of bodies that exceed it."""
LONG = 60.0
"""How many seconds to wait for something that is certain to happen."""
ENDLESS = sa.text("""
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)
SELECT count(*) FROM n
""")
ENDLESS_WRITE = sa.text("""
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)
INSERT INTO conformance_notes SELECT CAST(i AS TEXT) FROM n
""")


def read_endlessly(tx: Tx) -> None:
    """Write a note, then run a statement that does not end."""
    write("never")(tx)
    tx.connection.execute(ENDLESS)


def write_endlessly(tx: Tx) -> None:
    """Write a note, then run a statement that writes without end."""
    write("never")(tx)
    tx.connection.execute(ENDLESS_WRITE)


def compute(tx: Tx) -> None:
    """Write a note, then compute for too long without a statement."""
    write("never")(tx)
    threading.Event().wait(2 * SHORT)


def ignore_the_interruption(tx: Tx) -> None:
    """Continue after the interruption as if nothing had happened."""
    with suppress(BaseException):
        tx.connection.execute(ENDLESS_WRITE)
    write("never")(tx)
    tx.connection.execute(sa.text("UPDATE jobs SET priority = 9"))


TOO_LONG = [read_endlessly, write_endlessly, compute, ignore_the_interruption]


class TransactConformance(WithWorkers):
    """`transact` with a claim and with a limit on its time."""

    @pytest.fixture(autouse=True)
    async def _notes(self, store: Store) -> None:
        await store.transact(
            lambda tx: tx.connection.execute(sa.schema.CreateTable(notes))
        )

    async def test_a_body_of_the_claims_holder_is_committed(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.transact(write("kept"), claim=claim, seconds=60)

        assert ["kept"] == await written(store)
        assert JobState.RUNNING is (await find(store, claim.id)).state

    async def test_the_holder_may_commit_again_and_settle_then(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.transact(write("a"), claim=claim)
        await store.transact(write("b"), claim=claim)

        [applied] = await store.settle([settlement(claim, Done("1"))])

        assert ["a", "b"] == sorted(await written(store))
        assert applied is not None

    async def lose_by_rescue(self, store: Store, claim: Claim) -> None:
        """Let another worker rescue the job."""
        await store.settle([settlement(claim, HandedBack())])
        [again] = await self.claim(store, worker="w_2", token="t2")
        assert claim.id == again.id

    async def lose_by_end(self, store: Store, claim: Claim) -> None:
        """End the job."""
        await store.settle([settlement(claim, Done("1"))])

    async def lose_by_cancel(self, store: Store, claim: Claim) -> None:
        """Cancel the job."""
        job = await find(store, claim.id)
        change = transitions.cancel(job, "asked", now=NOON + SECOND)
        await store.settle([settlement(claim, Done("1"))._replace(change=change)])

    @pytest.mark.parametrize("how", ["rescue", "end", "cancel"])
    async def test_whoever_lost_the_claim_commits_nothing(
        self, store: Store, how: str
    ) -> None:
        claim = await self.claimed(store)
        await getattr(self, f"lose_by_{how}")(store, claim)
        ran: list[Tx] = []

        with pytest.raises(ClaimLost, match=claim.id):
            await store.transact(ran.append, claim=claim)

        assert [] == ran, "the body was run though the claim is lost"

    async def test_what_a_body_raises_reaches_its_caller_and_nothing_is_kept(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)

        with pytest.raises(Refused):
            await store.transact(write_and_refuse("x"), claim=claim, seconds=60)

        assert [] == await written(store)

    async def test_blocking_work_aside_lets_the_event_loop_go_on(
        self, store: Store
    ) -> None:
        loop, went_on = asyncio.get_running_loop(), threading.Event()

        def body(tx: Tx) -> bool:
            write("before")(tx)
            loop.call_soon_threadsafe(went_on.set)
            has_gone_on = store.aside(lambda: went_on.wait(LONG))
            write("after")(tx)
            return has_gone_on

        assert await store.transact(body)
        assert ["after", "before"] == sorted(await written(store))
        assert 7 == store.aside(lambda: 7), "outside of a body"

    async def test_what_fails_aside_fails_its_body(self, store: Store) -> None:
        def fail() -> None:
            raise Refused

        def body(tx: Tx) -> None:
            write("never")(tx)
            store.aside(fail)

        with pytest.raises(Refused):
            await store.transact(body)
        assert [] == await written(store)

    @pytest.mark.parametrize("body", TOO_LONG)
    @pytest.mark.parametrize("is_claimed", [True, False])
    async def test_a_body_that_takes_too_long_is_cut_off_and_keeps_nothing(
        self, store: Store, body: Callable[[Tx], None], is_claimed: bool
    ) -> None:
        claim = await self.claimed(store)

        with pytest.raises(TransactionTooLong, match=r"longer than 0\.2 s"):
            await store.transact(
                body, claim=claim if is_claimed else None, seconds=SHORT
            )

        assert [] == await written(store)
        job = await find(store, claim.id)
        assert (JobState.RUNNING, 0) == (job.state, job.priority)

    @pytest.mark.parametrize("body", TOO_LONG)
    async def test_others_are_not_harmed_by_a_body_that_takes_too_long(
        self, store: Store, body: Callable[[Tx], None]
    ) -> None:
        claim = await self.claimed(store)

        _, submitted, kept, slow = await asyncio.gather(
            store.transact(write("first")),
            store.submit([a_new_job()]),
            store.transact(write("kept"), seconds=60),
            store.transact(body, seconds=SHORT),
            return_exceptions=True,
        )
        [applied] = await store.settle([settlement(claim, Done("1"))])

        assert isinstance(slow, TransactionTooLong)
        assert not isinstance(kept, BaseException)
        assert not isinstance(submitted, BaseException)
        assert ["first", "kept"] == sorted(await written(store))
        assert JobState.QUEUED is (await find(store, submitted[0].id)).state
        assert applied is not None
