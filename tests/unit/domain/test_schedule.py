"""Which ticks fire when some were missed: as a table, on a clock of whole hours."""

from dataclasses import replace

import pytest

from backburner.domain.queues.schedule import GRACE_MS, MOST, ScheduleState, due

HOUR = 3_600_000
HOURLY = ScheduleState("hourly", "greet", "0 * * * *", "UTC", "skip", HOUR)


def next_hour(instant):
    return instant - instant % HOUR + HOUR


@pytest.mark.parametrize(
    ("missed", "now", "ticks", "next_at"),
    [
        ("skip", HOUR - 1, (), HOUR),
        ("skip", HOUR, (HOUR,), 2 * HOUR),
        ("skip", HOUR + GRACE_MS, (HOUR,), 2 * HOUR),
        ("skip", HOUR + GRACE_MS + 1, (), 2 * HOUR),
        ("skip", 4 * HOUR + 1, (4 * HOUR,), 5 * HOUR),
        ("skip", 9 * HOUR - 1, (), 9 * HOUR),
        ("run_once", HOUR, (HOUR,), 2 * HOUR),
        ("run_once", 2 * HOUR - 1, (HOUR,), 2 * HOUR),
        ("run_once", 4 * HOUR + 1, (4 * HOUR,), 5 * HOUR),
        ("run_once", 9 * HOUR - 1, (HOUR,), 9 * HOUR),
        ("run_all", HOUR, (HOUR,), 2 * HOUR),
        ("run_all", 4 * HOUR - 1, (HOUR, 2 * HOUR, 3 * HOUR), 4 * HOUR),
    ],
)
def test_missed_ticks_fire_as_the_schedule_says(missed, now, ticks, next_at):
    assert (ticks, next_at) == due(replace(HOURLY, missed=missed), next_hour, now)


def test_of_very_many_missed_ticks_the_rest_comes_with_the_next():
    state = replace(HOURLY, missed="run_all")

    ticks, next_at = due(state, next_hour, 10 * MOST * HOUR)

    assert (MOST, (MOST + 1) * HOUR) == (len(ticks), next_at)


def test_a_tick_that_has_fired_does_not_fire_again():
    state = replace(HOURLY, missed="run_all", last_at=2 * HOUR)

    assert ((3 * HOUR,), 4 * HOUR) == due(state, next_hour, 3 * HOUR)
