"""Jobs whose capability a worker does not have: a few return soon, many one by one."""

from collections import Counter
from datetime import timedelta
from heapq import heappop, heappush

import pytest

from backburner.engine.run.unknown_jobs import UnknownJobs
from backburner.testing.doubles import FrozenClock
from backburner.testing.samples import a_claim

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def clock():
    return FrozenClock()


def offers(clock, count, duration, limit=DAY):
    """Return when each of some jobs is offered to a worker, in ms from the first."""
    jobs = UnknownJobs(clock, limit)
    begin = clock.monotonic()
    waiting = [(begin, job, 0) for job in range(count)]
    times = []
    while waiting[0][0] < begin + duration / SECOND * 1000:
        due, job, waited = heappop(waiting)
        clock.advance(timedelta(milliseconds=due - clock.monotonic()))
        times.append(due - begin)
        wait = jobs.wait(a_claim(throttled=waited)) // timedelta(milliseconds=1)
        heappush(waiting, (due + wait, job, waited + wait))
    return times


@pytest.mark.parametrize(
    ("waited", "wait"), [(0, 5), (500, 5), (1_000, 10), (6_000, 60), (80_000, 60)]
)
def test_one_job_is_offered_again_soon(clock, waited, wait):
    claim = a_claim(throttled=waited * 1_000)

    assert wait * SECOND == UnknownJobs(clock, DAY).wait(claim)


def test_an_old_job_delays_no_new_one(clock):
    jobs = UnknownJobs(clock, DAY)
    jobs.wait(a_claim(throttled=80_000_000))
    clock.advance(SECOND)

    assert 5 * SECOND == jobs.wait(a_claim())


def test_thousands_are_spread_evenly_over_a_minute(clock):
    times = offers(clock, 10_000, timedelta(minutes=15))
    each_second = Counter(time // 1_000 for time in times if time)

    assert max(each_second.values()) < 500  # all at once: 10,000
    assert len(times) < 10_000 * 15 * 60 / 30  # after 5 s each: 1,800,000


def test_no_job_of_many_waits_longer_than_a_minute(clock):
    """Another worker, which has their capability, may be idle."""
    jobs = UnknownJobs(clock, DAY)
    waits = [jobs.wait(a_claim()) for _ in range(100_000)]

    assert timedelta(minutes=1) == max(waits)


def test_a_lower_limit_offers_jobs_more_often(clock):
    jobs = UnknownJobs(clock, timedelta(minutes=12))
    waits = [jobs.wait(a_claim()) for _ in range(10_000)]

    assert timedelta(seconds=30) == max(waits)


def test_after_the_last_of_many_one_is_offered_soon_again(clock):
    jobs = UnknownJobs(clock, DAY)
    longest = max(jobs.wait(a_claim()) for _ in range(1_000))
    clock.advance(longest)

    assert timedelta(seconds=54.95) == longest
    assert 5 * SECOND == jobs.wait(a_claim())
