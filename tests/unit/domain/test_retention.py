"""Which ended jobs may go, by age and count, as a table."""

from datetime import timedelta

import pytest

from backburner.domain.errors import ConfigurationError
from backburner.domain.jobs.retention import horizon
from backburner.domain.queues.queue import Keep

HOUR = 3_600_000
NOW = 100 * HOUR
AGE = timedelta(hours=24)
OLD, NEW = (NOW - HOUR, 7), (NOW - 1, 9)


@pytest.mark.parametrize(
    ("count", "newest", "goes", "stays"),
    [
        (None, [], (NOW - 24 * HOUR, 5), (NOW - 24 * HOUR + 1, 5)),
        (2, [NEW, OLD], (NOW - 24 * HOUR, 5), OLD),
        (1, [NEW, OLD], OLD, (NOW - HOUR, 8)),
        (1, [NEW, (NOW - 30 * HOUR, 1)], (NOW - 24 * HOUR, 5), (NOW - 23 * HOUR, 5)),
        (1, [NEW, (NOW - 2, 8)], OLD, (NOW - 2, 8)),
    ],
    ids=["by age", "few", "the next after the count", "age is earlier", "too soon"],
)
def test_what_is_past_its_age_or_its_count_may_go(count, newest, goes, stays):
    last = horizon(now=NOW, age=AGE, count=count, newest=newest)

    assert goes <= last < stays


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "at least one"),
        ({"succeeded": timedelta()}, "must be positive"),
        ({"failed": timedelta(days=4000)}, "at most 3650 days"),
        ({"succeeded_count": 0}, "from 1 to 10000"),
        ({"failed_count": 10_001}, "from 1 to 10000"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong, told):
    with pytest.raises(ConfigurationError, match=told):
        Keep(**wrong)
