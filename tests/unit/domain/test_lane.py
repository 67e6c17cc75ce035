"""What a lane promises, whatever is asked of it and whatever its clock does."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.errors import ConfigurationError
from backburner.domain.lanes import permit as permits_of
from backburner.domain.lanes.lane import (
    Lane,
    LaneState,
    declared,
    is_reachable,
    lane_name,
)
from backburner.domain.lanes.pace import pace
from backburner.domain.lanes.permit import (
    Held,
    Permit,
    PermitRequest,
    Wait,
    give,
    is_parked,
    take,
)
from backburner.domain.lanes.rate_limit_headers import (
    LONGEST_WAIT,
    SERVED,
    RateLimitInfo,
)

NOON = 1_767_268_800_000
MINUTE = 60_000
REFUSED = RateLimitInfo(is_refused=True)


class LaneGate:
    """A lane, the permits that are out, and what was started when."""

    def __init__(self, lane=None, now=NOON):
        self.state = LaneState("p/m")
        if lane is not None:
            self.state = declared(self.state, lane)
        self.now = now
        self.held = {}
        self.starts = []
        self.most = 0
        self.asked = 0

    def take(self, tokens=0, waited=0, roll=0.5):
        self.asked += 1
        held = Held(len(self.held), self.state.probe in self.held)
        ask = PermitRequest(f"p_{self.asked}", tokens, waited, roll)
        self.state, answer = take(self.state, ask, held=held, now=self.now)
        if isinstance(answer, Permit):
            self.held[answer.id] = answer
            self.starts.append((self.now, tokens))
            self.most = max(self.most, len(self.held))
        return answer

    def give(self, permit, hint=SERVED):
        self.held.pop(permit.id, None)
        self.state = give(self.state, permit, hint, now=self.now)

    def until_open(self, patience=10 * MINUTE):
        """Ask again and again, as told, until there is a permit; return how long."""
        begun = self.now
        while isinstance(answer := self.take(roll=0.0), Wait):
            self.now += max(1, answer.span)
            assert self.now - begun <= patience, "the lane stays shut"
        return answer


def busiest(starts, tokens=False):
    """Return the most that was started in any minute."""
    return max(
        sum((n if tokens else 1) for at, n in starts if begun <= at < begun + MINUTE)
        for begun, _ in starts
    )


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "take", "serve", "refuse", "drop"]),
        st.integers(0, 20_000),
        st.integers(0, 400),
        st.floats(0, 1, exclude_max=True),
        st.none() | st.integers(0, 10**9),
    ),
    max_size=120,
)


def play(lane_gate, acts, after=lambda _lane_gate, _before, _answer: None):
    for what, span, tokens, roll, wait in acts:
        lane_gate.now += span
        before = lane_gate.state
        answer = None
        if what == "take":
            answer = lane_gate.take(tokens=tokens, waited=span, roll=roll)
        elif lane_gate.held:
            permit = lane_gate.held[min(lane_gate.held)]
            said = {"serve": SERVED, "drop": None}.get(
                what, REFUSED._replace(wait=wait)
            )
            lane_gate.give(permit, said)
        after(lane_gate, before, answer)


@given(ACTS)
def test_no_limit_that_was_declared_is_ever_passed(acts):
    lane = Lane("p/m", requests=5, tokens=900, at_once=2, spacing=timedelta(seconds=1))
    lane_gate = LaneGate(lane)

    play(lane_gate, acts)

    if lane_gate.starts:
        assert busiest(lane_gate.starts) <= 5
        assert busiest(lane_gate.starts, tokens=True) <= 900
    assert lane_gate.most <= 2
    times = [at for at, _ in lane_gate.starts]
    assert all(b - a >= 1000 for a, b in pairwise(times))


@given(ACTS)
def test_a_parked_lane_gives_no_permit_before_its_time_and_then_one(acts):
    def after(lane_gate, before, answer):
        if isinstance(answer, Permit):
            assert before.parked_until <= lane_gate.now, "it is parked"
            assert answer.is_probe == (before.refusals > 0)
            tries = [p for p in lane_gate.held.values() if p.is_probe]
            assert len(tries) <= 1 or before.refusals == 0, "one call tries"

    play(LaneGate(), acts, after)


@given(ACTS)
def test_every_wait_is_bounded_and_every_pace_is_some(acts):
    def after(lane_gate, _before, answer):
        if isinstance(answer, Wait):
            assert 0 < answer.span <= LONGEST_WAIT
        assert 1 <= pace(lane_gate.state, lane_gate.now) < 10**12
        assert lane_gate.state.parked_until <= lane_gate.now + LONGEST_WAIT
        assert lane_gate.state.ceiling >= 1
        assert len(lane_gate.state.starts) <= 62

    play(LaneGate(), acts, after)


@given(ACTS, st.integers(0, 10**12))
def test_a_clock_that_is_set_back_shuts_no_lane_for_long(acts, back):
    lane_gate = LaneGate(Lane("p/m", requests=5))
    play(lane_gate, acts)
    for permit in list(lane_gate.held.values()):
        lane_gate.give(permit)
    lane_gate.now -= back

    lane_gate.until_open(patience=2 * LONGEST_WAIT)


@given(st.integers(0, 59_000), st.integers(1, 10**9))
def test_a_clock_that_is_set_back_lets_no_more_calls_go(passed, back):
    lane_gate = LaneGate(Lane("p/m", requests=3))
    begun = [lane_gate.until_open() for _ in range(3)]
    lane_gate.now += passed // 60
    lane_gate.now -= back
    answers = [lane_gate.take() for _ in range(5)]

    assert 3 == len(begun)
    assert not any(isinstance(answer, Permit) for answer in answers)


def test_the_told_wait_is_kept():
    lane_gate = LaneGate()
    lane_gate.give(lane_gate.take(), RateLimitInfo(is_refused=True, wait=45_000))
    lane_gate.now += 44_999
    early = lane_gate.take()
    lane_gate.now += 1
    first = lane_gate.take()

    assert is_parked(lane_gate.state, lane_gate.now)
    assert isinstance(early, Wait)
    assert isinstance(first, Permit)
    assert first.is_probe


def test_without_a_told_wait_it_grows_from_one_refusal_to_the_next():
    lane_gate, waits = LaneGate(), []
    permit = lane_gate.take()
    for _ in range(20):
        lane_gate.give(permit, REFUSED)
        waits.append(lane_gate.state.parked_until - lane_gate.now)
        permit = lane_gate.until_open()

    assert waits[0] < waits[3] < waits[-1] <= MINUTE + 1000
    assert 1_000 <= waits[1] <= 4_000


def test_refusals_that_were_under_way_are_one_refusal():
    lane_gate = LaneGate()
    permits = [lane_gate.take() for _ in range(5)]
    lane_gate.now += 100
    lane_gate.give(permits[0], REFUSED)
    ceiling = lane_gate.state.ceiling
    for permit in permits[1:]:
        lane_gate.give(permit, REFUSED)

    assert ceiling == lane_gate.state.ceiling
    assert (1, 1) == (lane_gate.state.refusals, lane_gate.state.parkings)


def test_after_a_refusal_the_pace_falls_and_comes_back():
    lane_gate = LaneGate()
    for _ in range(90):
        lane_gate.give(lane_gate.until_open())
    lane_gate.give(lane_gate.until_open(), REFUSED)
    ceiling = lane_gate.state.ceiling
    lane_gate.give(lane_gate.until_open())
    fallen = pace(lane_gate.state, lane_gate.now)
    paces = []
    for _ in range(round(ceiling)):
        lane_gate.give(lane_gate.until_open())
        paces.append(pace(lane_gate.state, lane_gate.now))

    assert fallen == pytest.approx(0.85 * ceiling)
    assert paces == sorted(paces)
    assert max(paces) > 0.97 * ceiling


def test_one_refused_call_of_a_new_lane_does_not_shut_it_for_good():
    lane_gate = LaneGate()
    lane_gate.give(lane_gate.take(), REFUSED)
    lane_gate.give(lane_gate.until_open())
    lane_gate.now += 5_000

    assert isinstance(lane_gate.take(), Permit)


def test_a_lane_that_stands_idle_does_not_believe_that_it_has_become_faster():
    lane_gate = LaneGate()
    for _ in range(60):
        lane_gate.give(lane_gate.until_open())
    lane_gate.give(lane_gate.until_open(), REFUSED)
    lane_gate.give(lane_gate.until_open())
    before = pace(lane_gate.state, lane_gate.now)
    lane_gate.now += 24 * 60 * MINUTE

    lane_gate.give(lane_gate.take())

    assert pace(lane_gate.state, lane_gate.now) < 1.1 * before


def test_what_the_provider_tells_is_kept_at_once():
    lane_gate = LaneGate()
    lane_gate.give(lane_gate.take(), SERVED._replace(requests=30))
    slow = pace(lane_gate.state, lane_gate.now)
    lane_gate.now += 5_000
    lane_gate.give(lane_gate.take(), SERVED._replace(requests=90))
    fast = pace(lane_gate.state, lane_gate.now)
    lane_gate.now += 11 * MINUTE

    assert (29.4, 88.2) == pytest.approx((slow, fast))
    assert pace(lane_gate.state, lane_gate.now) == pytest.approx(90.0), (
        "it was told too long ago"
    )


def test_a_call_larger_than_the_limit_goes_when_nothing_else_does():
    lane_gate = LaneGate(Lane("p/m", tokens=100))
    lane_gate.take(tokens=60)
    lane_gate.now += 10_000
    full = lane_gate.take(tokens=500)
    lane_gate.now += 2 * MINUTE

    assert isinstance(full, Wait)
    assert isinstance(lane_gate.take(tokens=500), Permit)


def test_those_who_wait_are_spread_and_the_longest_comes_first():
    lane_gate = LaneGate()
    lane_gate.give(lane_gate.take(), RateLimitInfo(is_refused=True, wait=10_000))
    new = [lane_gate.take(roll=n / 100).span for n in range(100)]
    old = lane_gate.take(waited=10 * MINUTE, roll=0.5).span

    assert min(new) == 10_000
    assert len(set(new)) > 90
    assert old < sorted(new)[50]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "x" * 201},
        {"name": "a\nb"},
        {"requests": 0},
        {"tokens": -1},
        {"at_once": 0},
        {"spacing": timedelta(seconds=-1)},
        {"spacing": timedelta(hours=2)},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        Lane(**{"name": "p/m", **wrong})


def test_a_credential_is_never_part_of_a_name():
    name = lane_name("openai", "gpt-5-mini", "sk-secret")

    assert "secret" not in name
    assert name == lane_name("openai", "gpt-5-mini", "sk-secret")
    assert name != lane_name("openai", "gpt-5-mini", "sk-other")
    assert "openai/gpt-5-mini#team-a" == lane_name(
        "openai", "gpt-5-mini", label="team-a"
    )
    assert "openai/gpt-5-mini" == lane_name("openai", "gpt-5-mini")


def starts_of_three_minutes(monkeypatch=None):
    """Ask ten times a second for leave; five calls a minute are allowed."""
    if monkeypatch is not None:
        monkeypatch.setattr(permits_of, "until_room", lambda *_: 0.0)
    lane_gate = LaneGate(Lane("p/m", requests=5))
    for _ in range(1800):
        if isinstance(answer := lane_gate.take(), Permit):
            lane_gate.give(answer)
        lane_gate.now += 100
    return lane_gate.starts


def test_a_lane_that_is_asked_all_the_time_is_used_to_its_limit():
    starts = starts_of_three_minutes()

    assert 5 == busiest(starts)
    assert len(starts) >= 14


def test_the_pace_alone_would_let_more_go_in_a_minute(monkeypatch):
    # Control: nobody counts the last minute.
    assert busiest(starts_of_three_minutes(monkeypatch)) > 5


@pytest.mark.parametrize(
    ("name", "is_used"),
    [
        ("openai/gpt-5-mini", True),
        (lane_name("openai", "gpt-5-mini", "sk-1"), True),
        (lane_name("openai", "gpt-5-mini", "sk-2"), False),
        ("openai/gpt-5-mini#team-a", False),
        ("openia/gpt-5-mini", False),
        ("mock", False),
    ],
)
def test_a_lane_that_no_provider_goes_by_is_known(name, is_used):
    providers = [("openai", "sk-1"), ("local", None)]

    assert is_used is is_reachable(Lane(name), providers)
