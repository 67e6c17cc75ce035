"""Flows and batches that are submitted in a transaction body."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from backburner.domain.errors import ClaimLost, IllegalTransition
from backburner.domain.groups.batch import Members
from backburner.domain.groups.flow import FlowState
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState
from backburner.ports.store import Store
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import (
    NOON,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import Refused
from backburner.testing.store.linked import Collection, Course, Hands, WithFlows

MEMBERS = 6
Run = Callable[[Callable[[Tx], None]], Awaitable[None]]


class TransactedGroupConformance(WithFlows):
    """`Tx.submit_flows`, `Tx.open_batch` and `Tx.fill_batch`."""

    @pytest.fixture(params=["transact", "claim", "settlement"])
    def run(self, request: pytest.FixtureRequest, store: Store, hands: Hands) -> Run:
        """Run a body in each kind of transaction that has bodies."""

        async def transact(body: Callable[[Tx], None]) -> None:
            await store.transact(body)

        async def claim(body: Callable[[Tx], None]) -> None:
            job = a_new_job()
            await store.submit([job])
            await store.transact(body, claim=(await hands.take())[job.id])

        async def settlement(body: Callable[[Tx], None]) -> None:
            job = a_new_job()
            await store.submit([job])
            await hands.end(job.id, body=body)

        ways = {"transact": transact, "claim": claim, "settlement": settlement}
        return ways[request.param]

    async def test_groups_of_a_transaction_are_there_when_it_has_committed(
        self, hands: Hands, run: Run
    ) -> None:
        flow = a_new_flow(a_new_step("a"), a_new_step("b", "a"))
        batch = a_new_batch(sealed=False)
        opened = await self.open(hands, Members(), sealed=False)

        def body(tx: Tx) -> None:
            tx.submit_flows([flow])
            tx.open_batch(batch, Members([a_new_job()]))
            found = tx.find_batch(batch.id)
            assert found is not None
            tx.fill_batch(found.seq, Members([a_new_job()]), seal=True)
            tx.fill_batch(seq, Members([a_new_job()], [a_new_flow()]), seal=True)

        seq = await opened.seq()
        await run(body)
        course = Course(hands, flow.id)
        await course.end("a")
        await course.end("b")

        assert FlowState.SUCCEEDED is (await course.flow()).state
        both = [Collection(hands, batch.id), opened]
        assert [2, 2] == [(await b.counts()).total for b in both]
        assert all([(await b.batch()).sealed for b in both])

    async def test_nothing_of_a_refused_transaction_is_there(
        self, store: Store, hands: Hands, run: Run
    ) -> None:
        flow, batch = a_new_flow(a_new_step("a")), a_new_batch()
        opened = await self.open(hands, Members(), sealed=False)
        seq = await opened.seq()

        def body(tx: Tx) -> None:
            tx.submit_flows([flow])
            tx.open_batch(batch, Members([a_new_job()]))
            tx.fill_batch(seq, Members([a_new_job()]), seal=True)
            raise Refused("no")

        with pytest.raises(Refused):
            await run(body)

        assert [] == list(await store.find_flows([flow.id]))
        assert [] == list(await store.find_batches([batch.id]))
        assert 0 == (await opened.counts()).total
        assert not (await opened.batch()).sealed

    async def test_a_batch_that_takes_no_more_refuses_the_whole_transaction(
        self, store: Store, hands: Hands, run: Run
    ) -> None:
        full = await self.open(hands, Members([a_new_job()]))
        seq, flow = await full.seq(), a_new_flow(a_new_step("a"))

        def body(tx: Tx) -> None:
            tx.submit_flows([flow])
            tx.fill_batch(seq, Members([a_new_job()]), seal=False)

        with pytest.raises(IllegalTransition):
            await run(body)

        assert [] == list(await store.find_flows([flow.id]))
        assert 1 == (await full.counts()).total

    async def test_members_fill_their_own_batch_while_it_is_cancelled(
        self, store: Store, hands: Hands
    ) -> None:
        jobs = [a_new_job() for _ in range(MEMBERS)]
        batch = await self.open(hands, Members(jobs), sealed=False)
        seq, held = await batch.seq(), await hands.take()
        change = transitions.cancel_all("no", now=NOON)

        def more(tx: Tx) -> None:
            tx.fill_batch(seq, Members([a_new_job()]), seal=False)

        *filled, ended = await asyncio.gather(
            *(store.transact(more, claim=held[job.id]) for job in jobs),
            store.cancel_batch(seq, change),
            return_exceptions=True,
        )
        kept = [answer for answer in filled if answer is None]
        refused = [answer for answer in filled if answer is not None]
        counted = await batch.counts()

        assert [] == [
            answer
            for answer in refused
            if not isinstance(answer, ClaimLost | IllegalTransition)
        ]
        assert MEMBERS + len(kept) == ended
        assert {JobState.CANCELLED: MEMBERS + len(kept)} == dict(counted.jobs)

    async def test_bodies_fill_two_batches_in_opposite_orders(
        self, store: Store, hands: Hands
    ) -> None:
        both = [await self.open(hands, Members(), sealed=False) for _ in range(2)]
        seqs = [await batch.seq() for batch in both]

        def filling(order: list[int]) -> Callable[[Tx], None]:
            def body(tx: Tx) -> None:
                for seq in order:
                    tx.fill_batch(seq, Members([a_new_job()]), seal=False)

            return body

        orders = [seqs, seqs[::-1]] * MEMBERS
        await asyncio.gather(*(store.transact(filling(order)) for order in orders))

        assert [2 * MEMBERS] * 2 == [(await b.counts()).total for b in both]

    async def test_a_body_that_hides_a_missing_lock_is_run_again(
        self, store: Store, hands: Hands
    ) -> None:
        batch = await self.open(hands, Members(), sealed=False)
        seq = await batch.seq()

        def body(tx: Tx) -> None:
            with suppress(Exception):  # what a body must not do
                tx.fill_batch(seq, Members([a_new_job()]), seal=False)

        await asyncio.gather(*(store.transact(body) for _ in range(MEMBERS)))

        assert MEMBERS == (await batch.counts()).total
