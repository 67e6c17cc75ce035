"""The wall clock: zones, the hour that is missing and the one that comes twice."""

from datetime import UTC, datetime

import pytest

from backburner import ConfigurationError, Schedule
from backburner.domain.queues.schedule import ScheduleState
from backburner.engine.maintenance.schedule import following, ticks_of


def at(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("0 3 * * *", "UTC", "2026-01-01T12:00", "2026-01-02T03:00"),
        ("0 3 * * *", "UTC", "2026-01-02T03:00", "2026-01-03T03:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-01-01T12:00", "2026-01-02T02:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-07-01T12:00", "2026-07-02T01:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T01:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00", "2026-03-30T00:30"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "2026-10-25T00:30"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30", "2026-10-26T01:30"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10", "2026-10-26T01:30"),
        ("0 * * * *", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T01:00"),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("15 9 * * 1-5", "America/New_York", "2026-01-03T00:00", "2026-01-05T14:15"),
    ],
    ids=[
        "tomorrow",
        "a tick is not its own follower",
        "winter time",
        "summer time",
        "an hour that is missing: right after the gap",
        "and the day after as usual",
        "an hour that comes twice: the first time",
        "and not the second",
        "nor when it is asked in the second",
        "every hour means every hour",
        "a leap day",
        "a weekday elsewhere",
    ],
)
def test_ticks_follow_the_clock_on_the_wall(cron, zone, after, expected):
    assert at(expected) == following(cron, zone)(at(after))


def test_the_next_ticks_follow_each_other():
    first = at("2026-03-28T01:30")
    known = ScheduleState("a", "b", "30 2 * * *", "Europe/Berlin", "skip", first)
    unknown = ScheduleState("a", "b", "30 2 * * *", "Mars/Olympus", "skip", first)

    expected = [first, at("2026-03-29T01:00"), at("2026-03-30T00:30")]
    assert expected == ticks_of(known, 3)
    assert [first] == ticks_of(unknown, 3), "what is stored is shown anyway"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cron": "whenever"}, "whenever"),
        ({"cron": "0 0 30 2 *"}, "0 0 30 2"),
        ({"cron": ""}, "cron"),
        ({"timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"timezone": "../etc/passwd"}, "time zone"),
        ({"timezone": ""}, "time zone"),
        ({"missed": "perhaps"}, "run_once"),
        ({"name": ""}, "name"),
        ({"name": "two\nlines"}, "name"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_at_once(fields, told):
    usual = {"name": "nightly", "cron": "0 3 * * *", "capability": "greet"}

    with pytest.raises(ConfigurationError, match=told):
        Schedule(**usual | fields)
