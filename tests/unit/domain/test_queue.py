"""How many jobs of a queue may start: the arithmetic, as tables."""

from datetime import timedelta

import pytest

from backburner.domain.errors import ConfigurationError
from backburner.domain.queues.queue import Admission, Gate, Queue, Rate, admit, count

FREE = Gate(
    paused=False,
    concurrency=None,
    rate=None,
    per=0,
    window=0,
    started=0,
    limited_until=None,
    closed=0,
)
RATED = FREE._replace(rate=5, per=1_000)
USED = RATED._replace(window=7_000, started=3)


@pytest.mark.parametrize(
    ("gate", "running", "allowed", "is_rated"),
    [
        (FREE, 99, 10, False),
        (FREE._replace(paused=True), 0, 0, False),
        (USED._replace(paused=True), 0, 0, False),
        (FREE._replace(concurrency=20), 0, 10, False),
        (FREE._replace(concurrency=4), 0, 4, False),
        (FREE._replace(concurrency=4), 3, 1, False),
        (FREE._replace(concurrency=4), 4, 0, False),
        (FREE._replace(concurrency=4), 9, 0, False),
        (RATED, 99, 5, True),
        (USED, 0, 2, True),
        (USED._replace(started=5), 0, 0, True),
        (USED._replace(started=9), 0, 0, True),
        (USED._replace(rate=13), 0, 10, False),
        (USED._replace(concurrency=2), 0, 2, False),
        (USED._replace(concurrency=9), 6, 2, True),
        (USED._replace(concurrency=9), 8, 1, False),
    ],
)
def test_no_more_start_than_every_limit_allows(gate, running, allowed, is_rated):
    admission = admit(gate, wanted=10, running=running, now=7_500)

    assert (allowed, is_rated) == (admission.allowed, admission.is_rated)


@pytest.mark.parametrize(
    ("now", "window", "started"),
    [
        (7_000, 7_000, 3),
        (7_999, 7_000, 3),
        (8_000, 8_000, 0),
        (9_500, 9_000, 0),
        (6_999, 7_000, 3),
        (6_000, 7_000, 3),
        (5_999, 5_000, 0),
        (100, 0, 0),
    ],
    ids=[
        "it begins",
        "it ends",
        "the next one",
        "a later one",
        "a clock that is a little behind does not open it twice",
        "not by a whole window either",
        "a clock that was set back",
        "a clock that was set far back",
    ],
)
def test_starts_count_in_the_window_they_fall_in(now, window, started):
    admission = admit(USED, wanted=1, running=0, now=now)

    assert (window, started) == (admission.window, admission.started)


@pytest.mark.parametrize(
    ("admission", "taken", "waiting", "expected"),
    [
        (Admission(2, 7_000, 3, is_rated=True), 2, True, (7_000, 5, 8_000, 1)),
        (Admission(2, 7_000, 3, is_rated=True), 2, False, (7_000, 5, None, 0)),
        (Admission(2, 7_000, 3, is_rated=True), 1, False, (7_000, 4, None, 0)),
        (Admission(2, 7_000, 3, is_rated=False), 2, True, (7_000, 5, None, 0)),
        (Admission(0, 7_000, 5, is_rated=True), 0, True, (7_000, 5, 8_000, 1)),
        (Admission(5, 8_000, 0, is_rated=True), 5, True, (8_000, 5, 9_000, 1)),
    ],
)
def test_a_window_closes_when_it_is_full_and_jobs_wait(
    admission, taken, waiting, expected
):
    after = count(USED, admission, taken=taken, waiting=waiting)

    assert expected == after[4:]


def test_a_window_that_is_closed_does_not_close_again():
    closed = USED._replace(started=5, limited_until=8_000, closed=4)

    after = count(closed, Admission(0, 7_000, 5, is_rated=True), taken=0, waiting=True)

    assert closed == after


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Queue(""),
        lambda: Queue("two\nlines"),
        lambda: Queue("n" * 101),
        lambda: Queue("q", concurrency=0),
        lambda: Queue("q", per_worker=0),
        lambda: Rate(0, per=timedelta(seconds=1)),
        lambda: Rate(1, per=timedelta()),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(declare):
    with pytest.raises(ConfigurationError):
        declare()
