"""The model of a queue agrees with what can be worked out on paper."""

from math import log

import pytest

from bench.scaling import Deployment, simulate

AT_ONCE = 1e9
"""A store that takes no time."""


@pytest.mark.parametrize("use", [0.5, 0.8])
def test_one_slot_is_a_queue_that_is_known_on_paper(use):
    deployment = Deployment(jobs=use, slots=1, store=AT_ONCE, call=1.0, spread=0.0)

    found = simulate(deployment, 300_000)

    assert log(use / 0.05) / (1 - use) == pytest.approx(found.p95, rel=0.1)
    assert use == pytest.approx(found.busy, rel=0.02)


def test_many_slots_wait_less_than_few_that_are_used_as_much():
    few = simulate(Deployment(jobs=3, slots=20), 100_000)
    many = simulate(Deployment(jobs=30, slots=200), 100_000)

    assert many.p95 < few.p95 / 2


def test_a_store_that_is_asked_for_more_than_it_can_do_is_never_done():
    some = simulate(Deployment(jobs=80, slots=10_000, store=100), 50_000)
    more = simulate(Deployment(jobs=120, slots=10_000, store=100), 50_000)

    assert some.p99 < 1
    assert more.p50 > 10
