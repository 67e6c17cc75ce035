"""Lanes to providers: permits, rates, and the effect of a refusal."""

import asyncio
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from backburner.domain.events.event import LANE_THROTTLED
from backburner.domain.lanes.lane import Lane
from backburner.domain.lanes.permit import Permit, PermitRequest, Wait, is_parked
from backburner.domain.lanes.rate_limit_headers import SERVED, RateLimitInfo
from backburner.ports.store import Store
from backburner.ports.store.events import Topic
from backburner.ports.store.lanes import LaneView, PermitReturn
from backburner.ports.store.workers import WorkerLost
from backburner.testing.samples import ANN
from backburner.testing.store.acts import LEASE, VITALS, LetPass, WithWorkers

MINUTE = timedelta(minutes=1)
REFUSED = RateLimitInfo(is_refused=True)
_ids = count(1)


def an_ask(**fields: Any) -> PermitRequest:
    """Return a request for a permit, with its own id."""
    return PermitRequest(f"p_{next(_ids)}", **fields)


class LaneConformance(WithWorkers):
    """`take_permit`, `give_permit`, and the state between them."""

    async def take(
        self, store: Store, lane: str = "p/m", worker: str = "w_1", **fields: int
    ) -> Permit | Wait:
        """Ask for a permit."""
        return await store.take_permit(lane, worker, an_ask(**fields))

    async def permit(self, store: Store, lane: str = "p/m") -> Permit:
        """Ask for a permit, and get one."""
        answer = await self.take(store, lane)
        assert isinstance(answer, Permit), "the lane should be open"
        return answer

    async def give(
        self,
        store: Store,
        permit: Permit,
        hint: RateLimitInfo = SERVED,
        lane: str = "p/m",
    ) -> PermitReturn:
        """Return a permit."""
        return await store.give_permit(lane, permit, hint, an_ask())

    async def only(self, store: Store) -> LaneView:
        """Return the only lane."""
        [view] = await store.lanes()
        return view

    async def test_a_lane_that_nobody_declared_is_made_at_its_first_use(
        self, store: Store
    ) -> None:
        before = await store.lanes()
        answer = await self.take(store)
        view = await self.only(store)

        assert [] == list(before)
        assert isinstance(answer, Permit)
        assert ("p/m", None, None, None) == (
            view.state.name,
            view.state.requests,
            view.state.tokens,
            view.state.at_once,
        )
        assert 1 == view.in_use

    async def test_limits_of_a_model_bind_all_its_credentials_together(
        self, store: Store
    ) -> None:
        await store.declare_lanes([Lane("p/m", at_once=2)])
        first = await self.permit(store, "p/m#one")
        await self.permit(store, "p/m#two")
        full = [await self.take(store, name) for name in ("p/m#one", "p/m#three")]
        elsewhere = await self.take(store, "p/other#one")
        await self.give(store, first, lane="p/m#one")
        again = await self.take(store, "p/m#three")
        in_use = {view.state.name: view.in_use for view in await store.lanes()}

        assert all(isinstance(answer, Wait) for answer in full)
        assert isinstance(elsewhere, Permit)
        assert isinstance(again, Permit)
        assert {
            "p/m": 2,
            "p/m#one": 0,
            "p/m#three": 1,
            "p/m#two": 1,
            "p/other#one": 1,
        } == in_use

    async def test_a_minute_of_a_model_holds_its_requests_by_any_credential(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare_lanes([Lane("p/m", requests=6)])
        at = []
        for second in range(150):
            lane = f"p/m#{second % 2}"
            answer = await self.take(store, lane)
            if isinstance(answer, Permit):
                at.append(second)
                await self.give(store, answer, lane=lane)
            let_pass(timedelta(seconds=1))
        minutes = [sum(start <= s < start + 60 for s in at) for start in range(90)]

        assert max(minutes) <= 6, f"calls started at {at}"
        assert len(at) >= 12, "it lets as many go as it may"

    async def test_a_refusal_of_one_credential_parks_no_other(
        self, store: Store
    ) -> None:
        await store.declare_lanes([Lane("p/m", requests=6000)])
        refused = await self.permit(store, "p/m#one")
        await self.give(store, refused, REFUSED, "p/m#one")
        parked = await self.take(store, "p/m#one")
        other = await self.take(store, "p/m#two")

        assert isinstance(parked, Wait)
        assert isinstance(other, Permit)

    async def test_what_is_declared_last_holds_and_what_was_learnt_stays(
        self, store: Store
    ) -> None:
        await store.declare_lanes([Lane("p/m", requests=9), Lane("a/b", at_once=2)])
        await self.give(store, await self.permit(store), REFUSED)
        await store.declare_lanes([Lane("p/m", tokens=5, spacing=timedelta(seconds=2))])

        first, second = await store.lanes()

        assert ("a/b", 2) == (first.state.name, first.state.at_once)
        assert (None, 5, 2000) == (
            second.state.requests,
            second.state.tokens,
            second.state.spacing,
        )
        assert 1 == second.state.refusals

    async def test_no_more_calls_are_under_way_than_the_lane_allows(
        self, store: Store
    ) -> None:
        await store.declare_lanes([Lane("p/m", at_once=3)])

        answers = await asyncio.gather(
            *(self.take(store, worker=f"w_{1 + n % 2}") for n in range(20))
        )

        given = [answer for answer in answers if isinstance(answer, Permit)]
        # The pace may allow fewer concurrent calls, never more.
        assert 1 <= len(given) <= 3
        assert len(given) == (await self.only(store)).in_use

    async def test_a_permit_that_comes_back_is_free_for_the_next(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare_lanes([Lane("p/m", at_once=1)])
        first = await self.permit(store)
        let_pass(timedelta(seconds=5))
        none = await self.take(store, worker="w_2")
        await self.give(store, first)
        again = await self.take(store, worker="w_2")

        assert isinstance(none, Wait), "one call is all that may be under way"
        assert isinstance(again, Permit)
        assert 1 == (await self.only(store)).in_use

    async def test_a_permit_is_given_back_once(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare_lanes([Lane("p/m", at_once=1)])
        first = await self.permit(store)
        await self.give(store, first)
        let_pass(timedelta(seconds=5))
        await self.permit(store)
        let_pass(timedelta(seconds=5))
        await self.give(store, first)

        assert isinstance(await self.take(store), Wait), "another holds the permit"

    async def test_what_a_dead_worker_held_is_free(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare_lanes([Lane("p/m", at_once=1)])
        await self.permit(store)
        let_pass(LEASE / 2)
        heart = store.heart()
        await asyncio.to_thread(heart.beat, "w_2", VITALS)
        let_pass(LEASE / 2 + timedelta(seconds=1))
        held = await self.take(store, worker="w_2")
        await store.orphans(lease=LEASE, limit=9)
        freed = await self.take(store, worker="w_2")
        await asyncio.to_thread(heart.close)

        assert isinstance(held, Wait), "its lease was not judged yet"
        assert isinstance(freed, Permit)
        assert 1 == (await self.only(store)).in_use

    async def test_what_a_worker_held_that_left_is_free(self, store: Store) -> None:
        await store.declare_lanes([Lane("p/m", at_once=1)])
        await self.permit(store)
        await store.dismiss("w_1")

        assert 0 == (await self.only(store)).in_use
        assert isinstance(await self.take(store, worker="w_2"), Permit)

    async def test_a_worker_that_is_not_enlisted_gets_no_permit(
        self, store: Store
    ) -> None:
        with pytest.raises(WorkerLost):
            await self.take(store, worker="w_gone")

        assert 0 == (await self.only(store)).in_use

    async def test_no_more_calls_start_in_a_minute_than_the_lane_allows(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare_lanes([Lane("p/m", requests=4)])
        starts: list[int] = []
        for second in range(0, 150, 5):
            answers = [await self.take(store, worker=w) for w in ("w_1", "w_2")]
            starts += [second for answer in answers if isinstance(answer, Permit)]
            let_pass(timedelta(seconds=5))

        busiest = max(
            sum(1 for start in starts if begin <= start < begin + 60)
            for begin in range(150)
        )
        assert busiest <= 4
        assert len(starts) >= 8

    async def test_a_refusal_parks_the_lane_for_every_worker(
        self, store: Store, let_pass: LetPass
    ) -> None:
        permit = await self.permit(store)
        told = RateLimitInfo(is_refused=True, wait=30_000)
        given = await self.give(store, permit, told)
        let_pass(timedelta(seconds=29))
        answers = [await self.take(store, worker=w) for w in ("w_1", "w_2")]
        other = await self.take(store, "p/other")
        view = next(v for v in await store.lanes() if v.state.name == "p/m")

        assert given.is_parked
        assert given.wait is not None
        assert 30_000 <= given.wait.span
        assert all(isinstance(answer, Wait) for answer in answers)
        assert isinstance(other, Permit), "another lane is open"
        assert is_parked(view.state, view.now)
        assert 1000 == view.state.parked_until - view.now

    async def test_one_call_tries_before_the_others_go_on(
        self, store: Store, let_pass: LetPass
    ) -> None:
        told = RateLimitInfo(is_refused=True, wait=30_000)
        await self.give(store, await self.permit(store), told)
        let_pass(timedelta(seconds=31))
        probe = await self.permit(store)
        beside = [await self.take(store, worker=w) for w in ("w_1", "w_2")]
        await self.give(store, probe)
        let_pass(timedelta(seconds=5))
        after = await self.take(store)

        assert probe.is_probe
        assert all(isinstance(answer, Wait) for answer in beside)
        assert isinstance(after, Permit)
        assert not after.is_probe

    async def test_the_others_go_on_when_the_one_that_tries_was_answered(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await store.declare_lanes([Lane("p/m", at_once=2)])
        await self.give(store, await self.permit(store), REFUSED)
        let_pass(MINUTE)
        probe = await self.permit(store)
        await store.give_permit("p/m", probe, SERVED, an_ask(), is_over=False)
        let_pass(timedelta(seconds=5))
        beside = await self.take(store)
        let_pass(timedelta(seconds=5))
        third = await self.take(store)

        assert isinstance(beside, Permit)
        assert isinstance(third, Wait), "the call that tried is still under way"
        assert 2 == (await self.only(store)).in_use

    async def test_another_tries_if_the_one_that_did_is_dead(
        self, store: Store, let_pass: LetPass
    ) -> None:
        await self.give(store, await self.permit(store), REFUSED)
        let_pass(MINUTE)
        probe = await self.permit(store)
        await store.dismiss("w_1")
        again = await self.take(store, worker="w_2")

        assert probe.is_probe
        assert isinstance(again, Permit)
        assert again.is_probe

    async def test_each_parking_is_told_once(
        self, store: Store, let_pass: LetPass
    ) -> None:
        one, other = await self.permit(store), await self.permit(store)
        first = await self.give(store, one, REFUSED)
        second = await self.give(store, other, REFUSED)
        let_pass(MINUTE)
        third = await self.give(store, await self.permit(store), REFUSED)
        await self.give(store, one)

        topic = Topic(queues=True)
        found = (await store.stream(ANN, after=0, limit=9, topic=topic)).events
        assert [True, False, True] == [g.is_parked for g in (first, second, third)]
        assert [(LANE_THROTTLED, "p/m", 1), (LANE_THROTTLED, "p/m", 2)] == [
            (event.type, event.subject, event.n) for event in found
        ]
        assert all(event.data["parked_until"] > event.at for event in found)

    async def test_who_asks_in_vain_is_told_when_to_come(self, store: Store) -> None:
        told = RateLimitInfo(is_refused=True, wait=30_000)
        await self.give(store, await self.permit(store), told)
        answers = await asyncio.gather(*(self.take(store) for _ in range(9)))

        times = [answer.span for answer in answers if isinstance(answer, Wait)]
        assert 9 == len(times)
        assert min(times) >= 30_000
        assert len(set(times)) > 1, "they must not come all at once"
