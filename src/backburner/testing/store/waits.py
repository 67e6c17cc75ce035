"""Waits and signals: the first decision is final, and no signal is lost."""

import asyncio

from backburner.domain.events import event
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim, JobState, Owner, Tenant, Wait, WaitReason
from backburner.domain.jobs.outcome import Done, Failed, Suspension
from backburner.domain.jobs.wait import (
    MAX_SIGNALS,
    NewWait,
    Signal,
    SignalAnswer,
    Signalled,
    StoredWait,
    WaitOutcome,
)
from backburner.ports.store import Store
from backburner.ports.store.jobs import Settlement
from backburner.ports.store.maintenance import JobFilter
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import NOON
from backburner.testing.store.acts import (
    DAY,
    NO_RETENTION,
    Refused,
    WithWorkers,
    find,
    move,
    retry,
    settlement,
    submit,
    types,
)

SIGNAL = WaitReason.SIGNAL
STORED, WOKEN = Signalled(SignalAnswer.STORED), Signalled(SignalAnswer.STORED, True)
ENDED = Failed("BAD", "no", retryable=False)
QUESTION = NewWait("ok", WaitReason.QUESTION, None, '{"question":"?"}')


def waiting(claim: Claim, name: str = "go", until: int | None = None) -> Settlement:
    """Return the settlement of a run that waits for a signal."""
    return settlement(claim, Suspension(Wait(SIGNAL, name, until)))


def checked(claim: Claim, *names: str) -> Settlement:
    """Return the same settlement, unless one of these waits has a signal."""

    def body(tx: Tx) -> None:
        if tx.has_signal(claim.seq, names):
            raise Refused

    change = transitions.resume(claim, names[0], now=NOON)
    return waiting(claim)._replace(body=body, otherwise=lambda _: change)


async def open_(store: Store, claim: Claim, wait: NewWait | None = None) -> StoredWait:
    """Open a wait in a run that holds its job."""
    asked = wait or NewWait("go", SIGNAL)
    args = claim.seq, claim.token, claim.generation, asked
    found = await store.open_wait(*args)
    assert found is not None
    return found


class WaitConformance(WithWorkers):
    """`WaitStore`: waits are rows of their job, and the first decision is final."""

    async def test_a_job_that_waits_is_waiting_and_shows_for_what(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.settle([waiting(claim, until=NOON + DAY)])
        job = await find(store, claim.id)
        assert (JobState.WAITING, 0, 0) == (job.state, job.attempt, job.throttled)
        assert Wait(SIGNAL, "go", NOON + DAY) == job.wait
        assert [job.seq] == [
            found.seq
            for found in await store.jobs(
                JobFilter(state=JobState.WAITING), before=None, limit=5
            )
        ]
        assert (job.queue, JobState.WAITING, 1, None) in await store.depths()
        assert not await self.claim(store)
        assert event.WAITING == (await types(store, claim.id))[-1]

    async def test_an_open_wait_is_found_again_with_its_first_time(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        first = await open_(store, claim, NewWait("go", SIGNAL, DAY))
        assert first == await open_(store, claim, NewWait("go", SIGNAL, 2 * DAY))
        assert (None, None) == (first.outcome, first.value)

    async def test_a_claim_that_is_lost_opens_nothing(self, store: Store) -> None:
        claim = await self.claimed(store)
        lost = claim.seq, "another", claim.generation, NewWait("go", SIGNAL)
        assert await store.open_wait(*lost) is None
        assert STORED == await store.signal(claim.seq, Signal("go", "1"))

    async def test_a_signal_queues_the_job_that_waits(self, store: Store) -> None:
        claim = await self.claimed(store)
        await open_(store, claim)
        await store.settle([waiting(claim)])
        assert WOKEN == await store.signal(claim.seq, Signal("go", '{"a":1}'))
        job = await find(store, claim.id)
        assert (JobState.QUEUED, None) == (job.state, job.wait)
        assert event.SIGNALLED == (await types(store, claim.id))[-1]
        [again] = await self.claim(store, token="t2")
        found = await open_(store, again)
        assert (WaitOutcome.SIGNALLED, '{"a":1}') == (found.outcome, found.value)

    async def test_a_signal_may_come_first(self, store: Store) -> None:
        job = await find(store, await submit(store))
        assert STORED == await store.signal(job.seq, Signal("go", "1"))
        claim = await self.claimed(store)
        assert "1" == (await open_(store, claim)).value

    async def test_a_signal_after_the_look_is_seen_by_the_settlement(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await open_(store, claim)
        assert STORED == await store.signal(claim.seq, Signal("go", "1"))
        [applied] = await store.settle([checked(claim, "go")])
        assert applied is not None
        assert JobState.QUEUED is applied.to
        job = await find(store, claim.id)
        assert (JobState.QUEUED, 0) == (job.state, job.attempt)

    async def test_without_the_look_in_the_settlement_that_signal_is_missed(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await open_(store, claim)
        await store.signal(claim.seq, Signal("go", "1"))
        await store.settle([waiting(claim)])
        assert JobState.WAITING is (await find(store, claim.id)).state

    async def test_signals_and_ends_of_runs_at_once_leave_nobody_waiting(
        self, store: Store
    ) -> None:
        claims = [await self.claimed(store) for _ in range(20)]
        for claim in claims:
            await open_(store, claim)
        await asyncio.gather(
            *(store.settle([checked(claim, "go")]) for claim in claims),
            *(store.signal(claim.seq, Signal("go", "1")) for claim in claims),
        )
        states = {(await find(store, claim.id)).state for claim in claims}
        assert {JobState.QUEUED} == states

    async def test_the_first_of_several_signals_wins(self, store: Store) -> None:
        claim = await self.claimed(store)
        await open_(store, claim)
        answers = await asyncio.gather(
            *(store.signal(claim.seq, Signal("go", str(n))) for n in range(5))
        )
        kinds = [told.answer for told in answers]
        assert 1 == kinds.count(SignalAnswer.STORED)
        assert 4 == kinds.count(SignalAnswer.DIFFERS)
        value = str(kinds.index(SignalAnswer.STORED))
        assert value == (await open_(store, claim)).value
        same = await store.signal(claim.seq, Signal("go", value))
        assert SignalAnswer.REPEATED is same.answer

    async def test_a_wait_times_out_once_and_then_takes_no_signal(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        assert (await open_(store, claim, NewWait("go", SIGNAL, 0))).outcome is None
        told = await open_(store, claim)
        assert WaitOutcome.TIMED_OUT is told.outcome
        late = await store.signal(claim.seq, Signal("go", "1"))
        assert SignalAnswer.TOO_LATE is late.answer
        assert WaitOutcome.TIMED_OUT is (await open_(store, claim)).outcome

    async def test_a_time_out_and_a_signal_at_once_have_one_winner(
        self, store: Store
    ) -> None:
        claims = [await self.claimed(store) for _ in range(10)]
        for claim in claims:
            await open_(store, claim, NewWait("go", SIGNAL, 0))
        told = asyncio.gather(
            *(store.signal(claim.seq, Signal("go", "1")) for claim in claims)
        )
        looks = await asyncio.gather(*(open_(store, claim) for claim in claims))
        for signalled, found, claim in zip(await told, looks, claims, strict=True):
            is_signalled = found.outcome is WaitOutcome.SIGNALLED
            answer = SignalAnswer.STORED if is_signalled else SignalAnswer.TOO_LATE
            assert answer is signalled.answer
            assert found == await open_(store, claim)

    async def test_a_signal_before_the_time_out_was_decided_wins(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await open_(store, claim, NewWait("go", SIGNAL, 0))
        assert STORED == await store.signal(claim.seq, Signal("go", "1"))
        assert WaitOutcome.SIGNALLED is (await open_(store, claim)).outcome

    async def test_a_waiting_job_is_due_at_its_time_and_not_before(
        self, store: Store
    ) -> None:
        soon, never = await self.claimed(store), await self.claimed(store)
        await store.settle([waiting(soon, until=NOON + DAY), waiting(never)])
        assert NOON + DAY == await store.next_due()
        assert 0 == await store.promote(now=NOON + DAY - 1, limit=10)
        assert 1 == await store.promote(now=NOON + DAY, limit=10)
        assert JobState.QUEUED is (await find(store, soon.id)).state
        assert JobState.WAITING is (await find(store, never.id)).state
        assert await store.next_due() is None

    async def test_an_earlier_time_of_the_job_does_not_wake_it(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        asleep = Suspension(Wait(WaitReason.SLEEP, None, NOON + 2_000))
        await store.settle([settlement(claim, asleep)])
        await store.promote(now=NOON + 2_000, limit=10)
        [again] = await self.claim(store, token="t2")
        await store.settle([waiting(again)])
        assert await store.next_due() is None

    async def test_a_job_that_has_ended_takes_no_signal(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.settle([settlement(claim, Done("1"))])
        told = await store.signal(claim.seq, Signal("go", "1"))
        assert SignalAnswer.FINISHED is told.answer
        gone = await store.signal(claim.seq + 1_000, Signal("go", "1"))
        assert SignalAnswer.FINISHED is gone.answer

    async def test_a_waiting_job_is_cancelled_like_any_other(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.settle([waiting(claim)])
        job = await find(store, claim.id)
        change = transitions.cancel(job, "no", now=NOON)
        assert [True] == await store.move([move(job, change)])
        assert not await store.questions(Tenant("default"), before=None, limit=5)

    async def test_a_retry_keeps_signals_and_forgets_open_waits(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await open_(store, claim, NewWait("late", SIGNAL, 0))
        await open_(store, claim, NewWait("late", SIGNAL, 0))
        await store.signal(claim.seq, Signal("go", "1"))
        await store.settle([settlement(claim, ENDED)])
        await store.reopen([retry(await find(store, claim.id))])
        [again] = await self.claim(store, token="t2")
        assert "1" == (await open_(store, again)).value
        assert (await open_(store, again, NewWait("late", SIGNAL, DAY))).outcome is None
        told = await store.signal(again.seq, Signal("go", "2"))
        assert SignalAnswer.DIFFERS is told.answer
        await store.settle([settlement(again, ENDED)])
        await store.reopen([retry(await find(store, claim.id))], fresh=True)
        [fresh] = await self.claim(store, token="t3")
        assert (await open_(store, fresh)).outcome is None

    async def test_a_job_takes_a_bounded_number_of_signals(self, store: Store) -> None:
        claim = await self.claimed(store)
        for n in range(MAX_SIGNALS):
            await store.signal(claim.seq, Signal(f"s{n}", "1"))
        told = await store.signal(claim.seq, Signal("one more", "1"))
        assert SignalAnswer.TOO_MANY is told.answer

    async def test_open_questions_are_listed_for_those_who_see_the_job(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await open_(store, claim, QUESTION)
        await open_(store, claim)
        owner = Owner(claim.tenant, claim.user)
        [found] = await store.questions(owner, before=None, limit=5)
        assert (claim.id, "ok", owner, '{"question":"?"}') == (
            *(found.job, found.name, found.owner, found.question),
        )
        assert not await store.questions(owner, before=found.seq, limit=5)
        assert [found] == await store.questions(
            Tenant(claim.tenant), before=None, limit=5
        )
        other = Owner(claim.tenant, "somebody else")
        assert not await store.questions(other, before=None, limit=5)
        unasked = await store.signal(claim.seq, Signal("go", "1", is_answer=True))
        assert SignalAnswer.UNASKED is unasked.answer
        told = await store.signal(claim.seq, Signal("ok", "1", is_answer=True))
        assert STORED == told
        assert not await store.questions(owner, before=None, limit=5)

    async def test_a_signal_does_not_decide_a_question(self, store: Store) -> None:
        claim = await self.claimed(store)
        assert STORED == await store.signal(claim.seq, Signal("ok", "1"))
        found = await open_(store, claim, QUESTION)
        assert (WaitReason.QUESTION, None, None) == (
            *(found.kind, found.outcome, found.value),
        )
        assert not await store.transact(lambda tx: tx.has_signal(claim.seq, ["ok"]))
        refused = Signalled(SignalAnswer.QUESTION)
        assert refused == await store.signal(claim.seq, Signal("ok", "1"))
        await store.settle([waiting(claim, "ok")])
        assert refused == await store.signal(claim.seq, Signal("ok", "1"))
        assert JobState.WAITING is (await find(store, claim.id)).state
        answer = Signal("ok", "2", is_answer=True)
        assert WOKEN == await store.signal(claim.seq, answer)
        assert refused == await store.signal(claim.seq, Signal("ok", "2"))
        [again] = await self.claim(store, token="t2")
        assert "2" == (await open_(store, again, QUESTION)).value

    async def test_a_signal_of_an_earlier_run_does_not_decide_a_question(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.signal(claim.seq, Signal("ok", "1"))
        await store.settle([settlement(claim, ENDED)])
        await store.reopen([retry(await find(store, claim.id))])
        [again] = await self.claim(store, token="t2")
        assert (await open_(store, again, QUESTION)).outcome is None
        await store.signal(again.seq, Signal("ok", "2", is_answer=True))
        await store.settle([settlement(again, ENDED)])
        await store.reopen([retry(await find(store, claim.id))])
        [third] = await self.claim(store, token="t3")
        assert "2" == (await open_(store, third, QUESTION)).value

    async def test_waits_go_with_their_job(self, store: Store) -> None:
        claim = await self.claimed(store)
        await open_(store, claim, QUESTION)
        await store.signal(claim.seq, Signal("go", "1"))
        await store.settle([settlement(claim, Done("1"))])
        await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=10)
        assert not await store.find([claim.id])
        assert not await store.transact(
            lambda tx: tx.has_signal(claim.seq, ["go", "ok"])
        )
