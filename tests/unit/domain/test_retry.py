from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.jobs.retry import RetryPolicy

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    base=st.timedeltas(timedelta(), timedelta(minutes=1)),
    factor=st.floats(1.0, 10.0),
    cap=st.timedeltas(timedelta(), timedelta(hours=1)),
    jitter=st.timedeltas(timedelta(), timedelta(minutes=1)),
)
numbers = st.integers(1, 10_000)
rolls = st.floats(0.0, 1.0, exclude_max=True)


def test_delays_double_up_to_the_cap():
    policy = RetryPolicy()

    seconds = [policy.delay(n, 0.0).total_seconds() for n in range(1, 8)]
    assert [1, 2, 4, 8, 16, 30, 30] == seconds


@given(policies, numbers, rolls)
def test_a_delay_is_never_longer_than_the_cap_and_the_jitter(policy, attempt, roll):
    assert timedelta() <= policy.delay(attempt, roll) <= policy.cap + policy.jitter


@given(policies, numbers, rolls)
def test_a_later_attempt_never_waits_shorter(policy, attempt, roll):
    assert policy.delay(attempt, roll) <= policy.delay(attempt + 1, roll)


@given(policies, numbers, rolls)
def test_the_dice_only_add(policy, attempt, roll):
    assert policy.delay(attempt, 0.0) <= policy.delay(attempt, roll)


def test_a_job_is_run_at_least_once():
    with pytest.raises(ValueError, match="at least 1"):
        RetryPolicy(max_attempts=0)


def test_listed_delays_come_in_their_order_and_the_last_again():
    minute = timedelta(minutes=1)
    policy = RetryPolicy.listed(minute, 5 * minute)

    assert 3 == policy.max_attempts
    assert [minute, 5 * minute, 5 * minute] == [
        policy.delay(attempt, 0.0) for attempt in (1, 2, 3)
    ]


def test_a_spread_grows_with_its_delay():
    minute = timedelta(minutes=1)
    policy = RetryPolicy.listed(minute, 10 * minute, spread=0.5)

    assert [1.25 * minute, 12.5 * minute] == [
        policy.delay(attempt, 0.5) for attempt in (1, 2)
    ]
