"""How many requests a caller may make, without a server."""

import pytest

from backburner.domain.auth.allowance import Allowance, AllowanceStatus, take
from backburner.testing.samples import NOON


def asked(rate, *times):
    """Return where a caller stands after each request, at milliseconds from noon."""
    full_at, standings = None, []
    for time in times:
        full_at, standing = take(full_at, Allowance(rate), NOON + time)
        standings.append(standing)
    return standings


@pytest.mark.parametrize(
    ("rate", "quota", "window"),
    [(1000, 1000, 1), (2.5, 2, 1), (1, 1, 1), (0.5, 1, 2), (0.01, 1, 100)],
)
def test_what_a_second_brings_may_come_at_once(rate, quota, window):
    allowance = Allowance(rate)

    assert (quota, window) == (allowance.quota, allowance.window)


def test_a_caller_uses_its_tokens_up_and_is_told_when_to_come_back():
    assert [
        AllowanceStatus(is_over=False, remaining=1, seconds=1),
        AllowanceStatus(is_over=False, remaining=0, seconds=1),
        AllowanceStatus(is_over=True, remaining=0, seconds=1),
    ] == asked(2, 0, 0, 0)


def test_tokens_come_back_with_time_and_no_more_than_the_bucket_holds():
    over = [standing.is_over for standing in asked(2, 0, 0, 499, 500, 60_000, 60_000)]
    full = asked(2, 0, 60_000)[-1]

    assert [False, False, True, False, False, False] == over
    assert 1 == full.remaining


def test_who_asks_in_vain_waits_no_longer_for_it():
    over = [standing.is_over for standing in asked(1, 0, 300, 600, 900, 1000)]

    assert [False, True, True, True, False] == over


def test_a_slow_allowance_says_how_long_it_takes():
    assert 100 == asked(0.01, 0, 0)[-1].seconds
    assert 50 == asked(0.01, 0, 50_000)[-1].seconds


def test_a_clock_that_was_set_back_costs_no_more_than_what_a_bucket_holds():
    assert [False, True, False] == [s.is_over for s in asked(1, 0, -5_000, -4_000)]


def test_a_caller_at_its_pace_is_never_over():
    assert {False} == {s.is_over for s in asked(3, *range(0, 60_000, 334))}
