from datetime import timedelta

import pytest

from backburner.domain.errors import IllegalTransition, Problem
from backburner.domain.events import event
from backburner.domain.jobs.job import FINAL, WAITING, JobState
from backburner.domain.jobs.outcome import (
    Cancel,
    Done,
    Expired,
    Failed,
    HandedBack,
    Snooze,
)
from backburner.domain.jobs.transitions import (
    ALLOWED,
    APART_LONGEST,
    Limits,
    cancel,
    expire,
    fingerprint,
    is_last_chance,
    keep_apart,
    retry,
    retry_all,
    settle,
    stall,
)
from backburner.testing.samples import NOON, a_claim, a_job

BACKOFF = timedelta(seconds=2)
MINUTE = timedelta(minutes=1)
LAST = a_claim(attempt=3, max_attempts=3)
EARLIER = a_claim(attempt=2, max_attempts=3)

AGAIN = Failed("BUSY", "later")
NEVER = Failed("BAD", "no", retryable=False)
LATER = Failed("LIMIT", "later", retry_after=MINUTE)
NEVER_LATER = Failed("BAD", "no", retryable=False, retry_after=MINUTE)


def settled(claim, outcome):
    return settle(claim, outcome, now=NOON, backoff=BACKOFF, limits=Limits())


def test_every_state_says_where_it_may_lead():
    assert set(ALLOWED) == set(JobState)


def test_nothing_leaves_a_final_state_but_a_retry_by_hand():
    leaving = {state: ALLOWED[state] for state in FINAL if ALLOWED[state]}

    assert {
        JobState.FAILED: {JobState.BLOCKED, JobState.QUEUED, JobState.SCHEDULED},
        JobState.CANCELLED: {JobState.BLOCKED},
    } == leaving


@pytest.mark.parametrize(
    ("outcome", "state", "told", "attempt"),
    [
        (Done("{}"), JobState.SUCCEEDED, event.SUCCEEDED, None),
        (AGAIN, JobState.SCHEDULED, event.RETRYING, None),
        (NEVER, JobState.FAILED, event.FAILED, None),
        (LATER, JobState.SCHEDULED, event.THROTTLED, 1),
        (NEVER_LATER, JobState.FAILED, event.FAILED, None),
        (Snooze(MINUTE), JobState.SCHEDULED, event.SCHEDULED, 1),
        (Cancel("pointless"), JobState.CANCELLED, event.CANCELLED, None),
        (HandedBack(), JobState.QUEUED, event.QUEUED, 1),
        (Expired(), JobState.FAILED, event.FAILED, None),
    ],
)
def test_what_an_earlier_attempt_came_to(outcome, state, told, attempt):
    change = settled(EARLIER, outcome)

    assert (state, told, attempt) == (change.to, change.event, change.attempt)
    assert change.to in ALLOWED[JobState.RUNNING]


@pytest.mark.parametrize(
    ("outcome", "state", "told", "attempt"),
    [
        (Done("{}"), JobState.SUCCEEDED, event.SUCCEEDED, None),
        (AGAIN, JobState.FAILED, event.FAILED, None),
        (NEVER, JobState.FAILED, event.FAILED, None),
        (LATER, JobState.SCHEDULED, event.THROTTLED, 2),
        (NEVER_LATER, JobState.FAILED, event.FAILED, None),
        (Snooze(MINUTE), JobState.SCHEDULED, event.SCHEDULED, 2),
        (Cancel("pointless"), JobState.CANCELLED, event.CANCELLED, None),
        (HandedBack(), JobState.QUEUED, event.QUEUED, 2),
        (Expired(), JobState.FAILED, event.FAILED, None),
    ],
)
def test_what_the_last_attempt_came_to(outcome, state, told, attempt):
    change = settled(LAST, outcome)

    assert (state, told, attempt) == (change.to, change.event, change.attempt)
    assert change.to in ALLOWED[JobState.RUNNING]


def test_a_success_keeps_its_output():
    assert settled(EARLIER, Done('{"a":1}')).output == '{"a":1}'


def test_a_retry_waits_for_the_backoff_and_keeps_the_reason():
    change = settled(EARLIER, AGAIN)

    assert NOON + 2_000 == change.run_at
    assert Problem("BUSY", "later", retryable=True) == change.error


def test_a_failure_that_is_final_is_named_so_that_its_like_can_be_found():
    change = settled(LAST, AGAIN)

    problem = Problem("BUSY", "later", retryable=True)
    assert problem == change.error
    assert fingerprint("greet", problem) == change.fingerprint


def test_a_throttled_wait_is_added_to_those_before():
    change = settled(a_claim(throttled=5_000), LATER)

    assert NOON + 60_000 == change.run_at
    assert 65_000 == change.throttled
    assert Problem("LIMIT", "later", retryable=True, retry_after=60.0) == change.error


@pytest.mark.parametrize("outcome", [LATER, Snooze(MINUTE)])
def test_a_job_that_was_told_to_wait_too_long_in_all_has_expired(outcome):
    full = Limits().throttled // timedelta(milliseconds=1)

    just = settled(a_claim(throttled=full - 60_000), outcome)
    over = settled(a_claim(throttled=full - 59_999), outcome)

    assert JobState.SCHEDULED == just.to
    assert (JobState.FAILED, "EXPIRED") == (over.to, over.error.code)


@pytest.mark.parametrize("delay", [timedelta(), timedelta(seconds=-5)])
def test_a_wait_of_no_length_takes_a_moment_and_is_counted(delay):
    change = settled(a_claim(throttled=1_000), Snooze(delay))

    assert NOON + 100 == change.run_at
    assert 1_100 == change.throttled


def test_a_stalled_job_is_queued_again_at_no_cost_of_an_attempt():
    job = a_job(JobState.RUNNING, attempt=2, crashes=1, worker="w_1")

    change = stall(job, now=NOON, limits=Limits(crashes=3))

    assert (JobState.QUEUED, event.STALLED) == (change.to, change.event)
    assert (1, 2) == (change.attempt, change.crashes)
    assert {"worker": "w_1", "crashes": 2} == change.data


def test_a_job_whose_workers_are_lost_too_often_has_failed():
    job = a_job(JobState.RUNNING, attempt=1, crashes=2, worker="w_1")

    change = stall(job, now=NOON, limits=Limits(crashes=3))

    assert (JobState.FAILED, "WORKER_LOST") == (change.to, change.error.code)
    assert 3 == change.crashes


@pytest.mark.parametrize(
    ("crashes", "limit", "is_last"),
    [(0, 3, False), (1, 3, False), (2, 3, True), (1, 2, True), (0, 1, False)],
)
def test_a_job_is_on_its_last_chance_when_one_more_crash_ends_it(
    crashes, limit, is_last
):
    assert is_last == is_last_chance(a_claim(crashes=crashes), Limits(crashes=limit))


@pytest.mark.parametrize("state", sorted(set(JobState) - FINAL))
def test_what_is_not_over_can_be_cancelled(state):
    change = cancel(a_job(state), "not needed", now=NOON)

    assert JobState.CANCELLED == change.to
    assert Problem("CANCELLED", "not needed") == change.error
    assert change.to in ALLOWED[state]


@pytest.mark.parametrize("state", sorted(FINAL))
def test_what_is_over_cannot_be_cancelled(state):
    with pytest.raises(IllegalTransition, match=f"is {state}"):
        cancel(a_job(state), "too late", now=NOON)


@pytest.mark.parametrize("state", sorted(WAITING))
def test_what_waits_past_its_time_has_expired(state):
    change = expire(a_job(state), now=NOON)

    assert (JobState.FAILED, "EXPIRED") == (change.to, change.error.code)
    assert change.to in ALLOWED[state]


def test_a_retry_by_hand_begins_a_generation_with_everything_fresh():
    job = a_job(JobState.FAILED, generation=1, attempt=3, crashes=3, throttled=9)

    change = retry(job, now=NOON)

    assert JobState.QUEUED == change.to
    assert 2 == change.generation
    assert (0, 0, 0) == (change.attempt, change.crashes, change.throttled)
    assert change.to in ALLOWED[job.state]


def test_dead_letters_that_are_retried_at_a_rate_wait_for_their_turn():
    jobs = [a_job(JobState.FAILED, seq=seq) for seq in range(4)]

    changes = retry_all(jobs, now=NOON, rate=3)

    assert [
        (JobState.QUEUED, event.QUEUED, None),
        (JobState.SCHEDULED, event.SCHEDULED, NOON + 333),
        (JobState.SCHEDULED, event.SCHEDULED, NOON + 666),
        (JobState.SCHEDULED, event.SCHEDULED, NOON + 1000),
    ] == [(change.to, change.event, change.run_at) for change in changes]
    assert {1} == {change.generation for change in changes}
    assert {change.to for change in changes} <= ALLOWED[JobState.FAILED]


def test_dead_letters_that_are_retried_without_a_rate_are_queued_at_once():
    jobs = [a_job(JobState.FAILED, seq=seq) for seq in range(3)]

    changes = retry_all(jobs, now=NOON)

    assert [JobState.QUEUED] * 3 == [change.to for change in changes]


@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.FAILED}))
def test_only_a_dead_letter_can_be_retried(state):
    with pytest.raises(IllegalTransition, match="only a failed job"):
        retry(a_job(state), now=NOON)


@pytest.mark.parametrize(
    "message",
    [
        "no row 7 for 'ann' after 31 s",
        "no row 8123 for 'bob' after 2 s",
        'no row 9 for "somebody else" after 1 s',
    ],
)
def test_failures_that_differ_in_particulars_are_alike(message):
    like = Problem("MISSING", "no row 1 for 'x' after 5 s")

    assert fingerprint("greet", like) == fingerprint(
        "greet", Problem("MISSING", message)
    )


@pytest.mark.parametrize(
    ("capability", "problem"),
    [
        ("other", Problem("MISSING", "no row")),
        ("greet", Problem("OTHER", "no row")),
        ("greet", Problem("MISSING", "no column")),
    ],
)
def test_failures_of_another_kind_are_not_alike(capability, problem):
    known = fingerprint("greet", Problem("MISSING", "no row"))

    assert known != fingerprint(capability, problem)


def test_a_fingerprint_does_not_change_between_releases():
    assert "406ffd3d02686ccc" == fingerprint("greet", Problem("MISSING", "no row 7"))


def test_a_fingerprint_can_be_taken_of_any_text():
    assert 16 == len(fingerprint("greet", Problem("BAD", "\ud800\x00")))


def test_a_job_that_is_kept_apart_for_long_writes_fewer_and_fewer_events():
    claim, waited, events = a_claim(events=6), timedelta(), []
    beat, hour = timedelta(seconds=2), timedelta(hours=1)
    first = keep_apart(claim, beat, now=NOON, roll=0.0)
    while waited < 24 * hour:
        change = keep_apart(claim, beat, now=NOON, roll=0.5)
        assert change.run_at - NOON <= 2 * APART_LONGEST / timedelta(milliseconds=1)
        waited += timedelta(milliseconds=change.run_at - NOON)
        claim = claim._replace(events=claim.events + 3)
        events.append(claim.events)

    assert NOON + 2_000 == first.run_at
    assert 1_500 > events[-1], "it used to be some 80,000 a day"
