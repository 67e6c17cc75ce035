"""Model usage of jobs: recorded once, whatever happens to the run."""

from datetime import timedelta
from typing import Any

import pytest

from backburner.domain.costs.usage import RunUsage, Spent, Usage
from backburner.domain.jobs.job import Claim
from backburner.domain.jobs.outcome import (
    Cancel,
    Done,
    Failed,
    HandedBack,
    Outcome,
    Snooze,
)
from backburner.ports.store import Store
from backburner.ports.store.transactions import Tx
from backburner.ports.store.usage import UsageFilter
from backburner.testing.samples import ANN, BOB, NOON
from backburner.testing.store.acts import (
    DAY,
    NO_RETENTION,
    SECOND,
    Refused,
    WithWorkers,
    retry,
    settlement,
)

CALL = Usage("m-1", 100, 20, "custom", 40, NOON, 7, "t-1", 850)
MORE = Usage("m-2", 1_000, 200, None, 0, NOON + SECOND, 30, "t-2")
UNPRICED = Usage("m-3", 5, 5, at=NOON)


def booking(claim: Claim, *calls: Usage, **fields: Any) -> RunUsage:
    """Return the usage of a claim's run."""
    usual = RunUsage(claim.seq, claim.token, claim.generation, claim.events, calls)
    return usual._replace(**fields)


async def spent(store: Store, claim: Claim) -> Spent | None:
    """Return the usage of a job."""
    return (await store.spent([claim.seq])).get(claim.seq)


def settled(claim: Claim, outcome: Outcome, *calls: Usage, **fields: Any) -> Any:
    """Return the settlement of a claim with its usage."""
    return settlement(claim, outcome, usage=calls, **fields)


def refuse(tx: Tx) -> None:
    """Fail, as a transaction body."""
    del tx
    raise Refused


class UsageConformance(WithWorkers):
    """`UsageStore`: every call counts exactly once."""

    @pytest.mark.parametrize(
        "outcome",
        [
            Done("1"),
            Failed("BUSY", "later"),
            Failed("BAD", "no", retryable=False),
            Snooze(timedelta(minutes=1)),
            Cancel("no"),
            HandedBack(),
        ],
        ids=lambda outcome: type(outcome).__name__,
    )
    async def test_a_run_pays_for_its_calls_whatever_it_comes_to(
        self, store: Store, outcome: Outcome
    ) -> None:
        claim = await self.claimed(store)

        await store.settle([settled(claim, outcome, CALL, MORE)])

        assert Spent(
            2, 1_100, 220, 40, 37, 0, 0, 1, ("m-1", "m-2"), ("t-1", "t-2")
        ) == await spent(store, claim), "two calls add up to what they used and cost"

    async def test_calls_are_listed_one_by_one_in_pages(self, store: Store) -> None:
        claim, other = await self.claimed(store), await self.claimed(store)
        await store.settle([settled(claim, Done("1"), CALL, MORE, UNPRICED)])
        await store.settle([settled(other, Done("1"), MORE)])

        first = await store.calls_of(claim.seq, limit=2)
        rest = await store.calls_of(claim.seq, after=first[-1].seq, limit=2)

        found = [*first, *rest]
        assert [CALL, MORE, UNPRICED] == [one.used for one in found]
        assert {(0, claim.events, False)} == {
            (one.generation, one.epoch, one.is_late) for one in found
        }
        assert [2, 1] == [len(first), len(rest)]

    async def test_a_job_that_calls_nothing_has_used_nothing(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)

        await store.settle([settled(claim, Done("1"))])

        assert await spent(store, claim) is None

    async def test_a_call_without_a_price_makes_the_whole_cost_unknown(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)

        await store.settle([settled(claim, Done("1"), CALL, UNPRICED)])
        used = await spent(store, claim)

        assert used is not None
        assert (None, 7, 1) == (used.cost, used.known_cost, used.unpriced)

    async def test_what_was_told_before_the_end_counts_once(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.book([booking(claim, CALL)])
        await store.book([booking(claim, CALL), booking(claim, CALL, MORE)])
        before = await spent(store, claim)
        await store.settle([settled(claim, Done("1"), CALL, MORE)])

        assert before is not None
        assert (2, 0) == (before.calls, before.late)
        assert before == await spent(store, claim)

    async def test_a_stale_settlement_books_nothing_and_its_calls_are_booked_late(
        self, store: Store
    ) -> None:
        stale = await self.claimed(store)
        await store.settle([settled(stale, HandedBack())])

        applied = await store.settle([settled(stale, Done("1"), CALL)])
        before = await spent(store, stale)
        await store.book([booking(stale, CALL)])
        used = await spent(store, stale)

        assert ([None], None) == (list(applied), before)
        assert used is not None
        assert (1, 1) == (used.calls, used.late), "it is booked, and marked as late"

    async def test_runs_of_one_job_do_not_hide_each_others_calls(
        self, store: Store
    ) -> None:
        first = await self.claimed(store)
        await store.settle([settled(first, HandedBack(), CALL)])
        second = (await self.claim(store, token="t2"))[0]

        await store.settle([settled(second, Done("1"), CALL)])
        used = await spent(store, first)

        assert first.attempt == second.attempt
        assert used is not None
        assert 2 == used.calls

    async def test_a_retried_job_keeps_what_it_used_before(self, store: Store) -> None:
        claim = await self.claimed(store)
        outcome = Failed("BAD", "no", retryable=False)
        await store.settle([settled(claim, outcome, CALL)])
        failed = (await store.find([claim.id]))[0]
        await store.move([retry(failed)])
        again = (await self.claim(store, token="t2"))[0]

        await store.book([booking(claim, CALL, MORE)])
        await store.settle([settled(again, Done("1"), CALL)])
        used = await spent(store, claim)

        assert used is not None
        assert (3, 1) == (used.calls, used.late)

    async def test_earlier_runs_of_a_generation_are_added_up_for_the_next(
        self, store: Store
    ) -> None:
        async def before(claim: Claim) -> int:
            run = {"generation": claim.generation, "epoch": claim.events}
            return (await store.spent_before(claim.seq, **run)).calls

        first = await self.claimed(store)
        await store.settle([settled(first, HandedBack(), CALL, MORE)])
        second = (await self.claim(store, token="t2"))[0]
        await store.book([booking(second, CALL)])
        found = [await before(first), await before(second)]
        outcome = Failed("BAD", "no", retryable=False)
        await store.settle([settled(second, outcome, CALL)])
        await store.move([retry((await store.find([first.id]))[0])])
        again = (await self.claim(store, token="t3"))[0]

        assert [0, 2] == found, "not what the run itself has used"
        assert 0 == await before(again), "nor what was used before the retry by hand"

    async def test_the_calls_of_a_run_with_a_body_commit_with_it(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)

        with pytest.raises(Refused):
            await store.settle([settled(claim, Done("1"), CALL, body=refuse)])

        assert await spent(store, claim) is None

    async def test_the_calls_of_a_run_whose_body_fails_are_still_paid(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        instead = settlement(claim, Failed("BUSY", "later")).change

        await store.settle(
            [
                settled(
                    claim,
                    Done("1"),
                    CALL,
                    body=refuse,
                    otherwise=lambda _: instead,
                )
            ]
        )
        used = await spent(store, claim)

        assert used is not None
        assert 1 == used.calls

    async def test_calls_outlive_their_job_and_go_by_their_own_age(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.settle([settled(claim, Done("1"), CALL, MORE)])

        await store.prune(keep=NO_RETENTION, now=NOON + 2 * DAY, limit=10)
        await store.book([booking(claim, CALL, MORE, UNPRICED)])
        kept = await spent(store, claim)
        gone = await store.forget_usage(before=NOON + 1, limit=10)
        left = await spent(store, claim)

        assert [] == list(await store.find([claim.id]))
        assert kept is not None
        assert left is not None
        assert (2, 1, 1) == (kept.calls, gone, left.calls)

    async def test_a_long_history_is_forgotten_a_piece_at_a_time(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)
        await store.book([booking(claim, *[CALL] * 5)])

        assert 3 == await store.forget_usage(before=NOON + 1, limit=3)
        assert 2 == await store.forget_usage(before=NOON + 1, limit=3)

    @pytest.mark.parametrize(
        ("by", "expected"),
        [
            ("capability", [("read", 3, 2), ("write", 1, 1)]),
            ("model", [("m-2", 1, 1), ("m-1", 2, 2), ("m-3", 1, 1)]),
            ("user", [("ann", 3, 2), ("bob", 1, 1)]),
            ("day", [("2026-01-01", 3, 2), ("2026-01-02", 1, 1)]),
            ("minute", [("2026-01-01T12:00Z", 3, 2), ("2026-01-02T12:00Z", 1, 1)]),
            ("tag", [("a", 4, 3), ("b", 2, 1)]),
        ],
    )
    async def test_calls_are_added_up_by_what_is_asked(
        self, store: Store, by: str, expected: list[tuple[str, int, int]]
    ) -> None:
        await self._calls(store)

        whole, found = await store.sums(UsageFilter("acme"), by, limit=10)

        assert expected == [(name, s.calls, s.jobs) for name, s in found]
        assert (4, 3, 1, 44) == (
            whole.calls,
            whole.jobs,
            whole.unpriced,
            whole.known_cost,
        )

    async def test_only_what_is_asked_for_is_added_up(self, store: Store) -> None:
        await self._calls(store)
        noon = UsageFilter("acme", since=NOON, until=NOON + SECOND)

        mine, _ = await store.sums(UsageFilter("acme", "ann"), "model", limit=10)
        early, _ = await store.sums(noon, "model", limit=10)
        others, none = await store.sums(UsageFilter("other"), "model", limit=10)
        _, cut = await store.sums(UsageFilter("acme"), "model", limit=1)

        assert (3, 2) == (mine.calls, early.calls)
        assert (0, [], 1) == (others.calls, list(none), len(cut))

    async def test_of_many_groups_the_first_are_returned(self, store: Store) -> None:
        tags = ['a"b', "c\\nd", "[é,1]", "x" * 64]
        for n in range(4):
            some = ("all", *tags[: n + 1])
            claim = await self.claimed(store, owner=ANN, tags=some)
            at = NOON + n * 60 * SECOND
            await store.settle([settled(claim, Done("1"), CALL._replace(at=at))])

        _, by_tag = await store.sums(UsageFilter("acme"), "tag", limit=9)
        _, most = await store.sums(UsageFilter("acme"), "tag", limit=2)
        _, first = await store.sums(UsageFilter("acme"), "minute", limit=2)

        assert [("all", 4), *zip(tags, (4, 3, 2, 1), strict=True)] == sorted(
            [(tag, s.jobs) for tag, s in by_tag],
            key=lambda item: -item[1] - (item[0] == "all"),
        )
        assert {"all", tags[0]} == {tag for tag, _ in most}
        assert ["2026-01-01T12:00Z", "2026-01-01T12:01Z"] == [at for at, _ in first]

    async def test_costs_name_what_was_dear_and_what_failed(self, store: Store) -> None:
        await self._calls(store)
        dear = await self.claimed(store, capability="write", owner=ANN)
        await store.settle([settled(dear, Failed("BUSY", "later"), MORE, MORE)])
        await store.promote(now=NOON + DAY, limit=1)
        again = (await self.claim(store, token="t2"))[0]
        await store.settle([settled(again, Done("1"), CALL)])

        found = await store.costs(UsageFilter("acme"), limit=2)
        mine = await store.costs(UsageFilter("acme", "bob"), limit=2)
        nobody = await store.costs(UsageFilter("other"), limit=2)

        assert (7, 4, 111) == (
            found.total.calls,
            found.total.jobs,
            found.total.known_cost,
        )
        assert (2, 60) == (found.failed.calls, found.failed.known_cost)
        assert [("m-2", 90), ("m-1", 21)] == [
            (name, used.known_cost) for name, used in found.by["model"]
        ]
        assert ["write", "read"] == [name for name, _ in found.by["capability"]]
        assert [(dear.id, "succeeded", 67), ("read", 37)] == [
            (found.jobs[0].id, found.jobs[0].state, found.jobs[0].spent.known_cost),
            (found.jobs[1].capability, found.jobs[1].spent.known_cost),
        ]
        assert (["bob"], 1) == (
            [name for name, _ in mine.by["user"]],
            len(mine.jobs),
        )
        assert (0, [], None) == (nobody.total.calls, list(nobody.jobs), nobody.since)
        assert not found.is_capped

    async def test_huge_counts_add_up(self, store: Store) -> None:
        claim = await self.claimed(store)
        huge = Usage("m" * 200, 10**12, 10**12, at=NOON)

        await store.book([booking(claim, *[huge] * 50)])
        used = await spent(store, claim)

        assert used is not None
        assert 100 * 10**12 == used.tokens

    async def _calls(self, store: Store) -> None:
        both, first = ("a", "b"), ("a",)
        one = await self.claimed(store, capability="read", tags=both)
        await store.settle([settled(one, Done("1"), CALL, MORE)])
        two = await self.claimed(store, capability="read", tags=first, owner=BOB)
        later = CALL._replace(at=NOON + DAY)
        await store.settle([settled(two, Done("1"), later)])
        three = await self.claimed(store, capability="write", tags=first, owner=ANN)
        await store.settle([settled(three, Done("1"), UNPRICED)])
