import pytest

from backburner.domain.events import event
from backburner.domain.events.event import LEADS_TO, AttemptRecord, Event, attempts
from backburner.domain.jobs.job import FINAL, JobState

ERROR = {"code": "BUSY", "message": "later"}


def a_history(*told):
    return [
        Event(n, "job_1", n, kind, at=n * 100, data=data)
        for n, (kind, data) in enumerate(told, start=1)
    ]


def started(attempt, worker="w_1", generation=0):
    data = {"attempt": attempt, "worker": worker, "generation": generation}
    return event.STARTED, data


def an_attempt(number, begun, **fields):
    usual = {"generation": 0, "number": number, "worker": "w_1", "started_at": begun}
    return AttemptRecord(**usual | fields)


def test_a_job_that_never_ran_has_no_attempts():
    assert [] == attempts(a_history((event.QUEUED, {}), (event.CANCELLED, {})))


def test_a_running_attempt_is_open():
    history = a_history((event.QUEUED, {}), started(1), (event.PROGRESS, {"done": 1}))

    assert [an_attempt(1, 200)] == attempts(history)


@pytest.mark.parametrize(
    ("ending", "data", "outcome"),
    [
        (event.SUCCEEDED, {}, "succeeded"),
        (event.RETRYING, {"error": ERROR}, "retrying"),
        (event.THROTTLED, {"error": ERROR}, "throttled"),
        (event.SCHEDULED, {"error": ERROR}, "scheduled"),
        (event.STALLED, {"crashes": 1}, "stalled"),
        (event.FAILED, {"error": ERROR}, "failed"),
        (event.CANCELLED, {"error": ERROR}, "cancelled"),
        (event.QUEUED, {"outcome": "handed_back"}, "handed_back"),
    ],
)
def test_an_attempt_ends_with_what_became_of_it(ending, data, outcome):
    history = a_history((event.QUEUED, {}), started(1), (ending, data))

    expected = an_attempt(
        1, 200, finished_at=300, outcome=outcome, error=data.get("error")
    )
    assert [expected] == attempts(history)


def test_what_happens_between_attempts_belongs_to_none():
    history = a_history(
        (event.QUEUED, {}),
        started(1),
        (event.RETRYING, {"error": ERROR}),
        (event.QUEUED, {}),
        started(2, worker="w_2"),
        (event.SUCCEEDED, {}),
    )

    assert [
        an_attempt(1, 200, finished_at=300, outcome="retrying", error=ERROR),
        an_attempt(2, 500, worker="w_2", finished_at=600, outcome="succeeded"),
    ] == attempts(history)


def test_attempts_of_two_generations_are_told_apart():
    history = a_history(
        started(1),
        (event.FAILED, {"error": ERROR}),
        (event.QUEUED, {"generation": 1}),
        started(1, generation=1),
        (event.SUCCEEDED, {}),
    )

    assert [(0, 1), (1, 1)] == [(a.generation, a.number) for a in attempts(history)]


def test_an_event_is_final_when_the_state_it_leads_to_is():
    final = {kind for kind in LEADS_TO if Event(1, "j", 1, kind, 0, {}).is_final}

    assert {event.SUCCEEDED, event.FAILED, event.CANCELLED} == final
    assert not Event(1, "j", 1, event.PROGRESS, 0, {}).is_final


def test_every_state_is_told_by_an_event():
    assert set(JobState) == set(LEADS_TO.values())
    assert FINAL < set(LEADS_TO.values())
