"""
A lane finds a provider's limit while it steps from 60 to 30 to 90 calls a minute.

Every two minutes; the 30 s after each step are not counted. `make test ARGS=…` prints
what came of it.
"""

import heapq
import math
from dataclasses import replace
from statistics import median

import pytest

from backburner.domain.lanes import pace, permit
from backburner.domain.lanes.lane import Lane, declared
from tests.unit.domain.providers import (
    LIMITS,
    Bucket,
    Fickle,
    Sliding,
    World,
    simulate,
)

SEEDS = 4
PROVIDERS = pytest.mark.parametrize("provider", [Sliding, Bucket])
DAY = 86_400


def run(provider, seeds=SEEDS, **options):
    outcomes = [simulate(provider(), seed=seed, **options) for seed in range(seeds)]
    return [step for outcome in outcomes for step in outcome.steps], outcomes


def refused(steps):
    """Return the share of calls that were refused."""
    return sum(s.refused for s in steps) / sum(s.refused + s.served for s in steps)


def throughput(steps, limit):
    """Return what was served of what a limit allows, over all its steps."""
    found = [step.throughput for step in steps if step.limit == limit]
    return sum(found) / len(found)


def told(provider, steps, outcomes, more):
    shares = ", ".join(f"{throughput(steps, n):.0%} of {n}" for n in LIMITS)
    asks = sum(outcome.asks for outcome in outcomes) / len(outcomes)
    return (
        f"lane, {provider.__name__.lower()}, {more}: {refused(steps):.2%} refused, "
        f"{shares} a minute, {asks:.1f} asks a call"
    )


@PROVIDERS
def test_without_hints_few_calls_are_refused_and_the_limit_is_used(
    provider, record_property
):
    steps, outcomes = run(provider)

    record_property("told", told(provider, steps, outcomes, "no hints"))
    assert refused(steps) < 0.02
    assert min(throughput(steps, limit) for limit in LIMITS) > 0.9
    assert max(outcome.longest for outcome in outcomes) < DAY / 24, "nobody starves"


@PROVIDERS
def test_with_hints_fewer_are_refused_and_more_of_the_limit_is_used(
    provider, record_property
):
    steps, outcomes = run(provider, with_hints=True)

    record_property("told", told(provider, steps, outcomes, "with hints"))
    assert refused(steps) < 0.005
    assert min(throughput(steps, limit) for limit in LIMITS) > 0.95


@pytest.mark.thorough
@PROVIDERS
def test_a_lane_that_only_rises_is_refused_far_more_often(provider, monkeypatch):
    # Control: no fall, neither of the pace nor of the ceiling.
    monkeypatch.setattr(pace, "FALL", 1.0)
    monkeypatch.setattr(pace, "fallen", lambda state, _now: state.ceiling)
    monkeypatch.setattr(pace, "DEEPEST_FALL", 1.0)

    steps, _ = run(provider, seeds=1)

    assert refused(steps) > 0.02


@pytest.mark.thorough
@PROVIDERS
def test_a_pace_that_never_tries_for_more_leaves_most_of_a_higher_limit(
    provider, monkeypatch
):
    # Control: what was learnt once is never tried again.
    monkeypatch.setattr(pace, "PLATEAU", 10**9)

    steps, _ = run(provider, seeds=1)

    assert throughput(steps, 90) < 0.9


@pytest.mark.thorough
@PROVIDERS
def test_a_lane_that_does_not_park_is_refused_far_more_often(provider):
    # Control: a refusal says nothing to the others.
    def take(state, ask, *, held, now):
        open_state = replace(state, refusals=0, parked_until=0, used=0.0)
        after, answer = permit.take(open_state, ask, held=held, now=now)
        return replace(after, is_learnt=False, ceiling=120.0), answer

    steps, _ = run(provider, seeds=1, take=take)

    assert refused(steps) > 0.02


def seconds(share, seed, calls=20):
    """Return how long calls take of a provider that refuses a share of them by lot."""
    provider = Fickle(share, seed)
    world = World(provider, seed=seed, jobs=20, with_hints=True)
    world.state = declared(world.state, Lane("p/m", requests=60_000))
    now = 0.0
    while provider.served < calls:
        now, _, act, value = heapq.heappop(world.due)
        act(now, value)
    return now


def test_refusals_by_chance_that_tell_when_to_come_again_slow_a_lane_little(
    record_property,
):
    few = [seconds(0.3, seed) for seed in range(20)]
    many = [seconds(0.3, seed, calls=200) for seed in range(5)]

    record_property(
        "told",
        "lane, 30 % refused by chance, a second each: 20 calls in "
        f"{median(few):.0f} s, at most {max(few):.0f} s, 200 in {median(many):.0f} s",
    )
    assert median(few) < 25
    assert max(few) < 60
    assert median(many) < 400


@pytest.mark.thorough
def test_a_lane_that_never_doubts_its_pace_crawls(monkeypatch):
    # Control: every refusal is believed to be for the pace.
    monkeypatch.setattr(pace, "spared", lambda _state, _now: 0.0)

    assert median(seconds(0.3, seed) for seed in range(20)) > 120


class Terse(Bucket):
    """Tells nothing but when to come again, in whole seconds as most do."""

    def headers(self, now, limit):
        wait = float(super().headers(now, limit)["retry-after-ms"]) / 1000
        return {"retry-after": str(math.ceil(wait))}


def test_a_provider_that_has_a_limit_is_not_taken_for_one_that_refuses_by_chance(
    record_property,
):
    steps, outcomes = run(Terse, with_hints=True)

    record_property("told", told(Terse, steps, outcomes, "a time only"))
    assert refused(steps) < 0.04
    assert min(throughput(steps, limit) for limit in LIMITS) > 0.9
