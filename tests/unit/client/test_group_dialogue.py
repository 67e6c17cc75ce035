"""What is asked about flows and batches, and again: no server needed."""

import json
from datetime import UTC, datetime

import pytest

from backburner.client import group_dialogue as say
from backburner.client.dialogue import (
    Answer,
    Done,
    Emit,
    Open,
    Pause,
    RequestPolicy,
    SendRequest,
    StreamMessage,
    advance,
)
from backburner.client.errors import NotFound, NotYet, Unavailable

AWAY = Unavailable("nobody is there", code="UNREACHABLE")
GONE = Answer(404, {}, b'{"detail": "no", "code": "FLOW_NOT_FOUND"}')
OPENED = Answer(200, {}, b"")
RUNNING = {"id": "flow_1", "state": "running", "steps": []}
STEP = {"id": "job_1", "name": "a", "state": "succeeded"}
BAD = {"id": "job_2", "name": "b", "state": "failed"}


def an_answer(body):
    return Answer(200, {}, json.dumps(body).encode())


def an_event(number, kind):
    return StreamMessage(str(number), json.dumps({"seq": number, "type": kind}))


def played(dialogue, *answers):
    """Give these answers, and none to pauses and tellings; return all steps."""
    given = iter(answers)
    steps = [advance(dialogue, None)]
    while not isinstance(steps[-1], Done):
        is_silent = isinstance(steps[-1], (Pause, Emit))
        steps.append(advance(dialogue, None if is_silent else next(given)))
    return steps


def of_kind(kind, steps):
    return [step for step in steps if isinstance(step, kind)]


@pytest.mark.parametrize(
    "dialogue",
    [
        say.submit_flow(RequestPolicy(), [], "k", {}),
        say.open_batch(RequestPolicy(), [], [], "k", {}),
        say.fill_batch(RequestPolicy(), "batch_1", [], [], seal=True),
        say.cancel_flow(RequestPolicy(), "flow_1"),
        say.cancel_batch(RequestPolicy(), "batch_1"),
    ],
)
def test_what_is_done_once_however_often_asked_is_asked_again(dialogue):
    asked = of_kind(SendRequest, played(dialogue, AWAY, an_answer(RUNNING)))

    assert 2 == len(asked)
    assert asked[0] == asked[1], "under the same key"


@pytest.mark.parametrize(
    "dialogue",
    [
        say.submit_flow(RequestPolicy(), [], None, {}),
        say.open_batch(RequestPolicy(), [], [], None, {}),
        say.retry_flow(RequestPolicy(), "flow_1"),
        say.retry_batch(RequestPolicy(), "batch_1"),
    ],
)
def test_what_could_happen_twice_is_asked_once(dialogue):
    with pytest.raises(Unavailable):
        played(dialogue, AWAY)


def test_times_are_written_wherever_they_are():
    moment = datetime(2030, 1, 31, tzinfo=UTC)
    steps = [{"name": "a", "capability": "c", "run_at": moment}]
    dialogue = say.submit_flow(RequestPolicy(), steps, "k", {"deadline": moment})
    (asked,) = of_kind(SendRequest, played(dialogue, an_answer(RUNNING)))
    sent = json.loads(asked.content)

    assert moment.isoformat() == sent["deadline"] == sent["steps"][0]["run_at"]


def test_the_results_are_those_of_steps_that_succeeded():
    ended = {**RUNNING, "state": "failed", "steps": [STEP, BAD]}
    steps = played(
        say.flow_results(RequestPolicy(), "flow_1", None),
        an_answer(ended),
        an_answer(7),
    )

    assert {"a": 7} == steps[-1].value
    assert "/v1/jobs/job_1/result" == of_kind(SendRequest, steps)[-1].path


def test_a_flow_that_goes_on_has_no_results():
    with pytest.raises(NotYet, match="flow_1 is running"):
        played(say.flow_results(RequestPolicy(), "flow_1", 0), an_answer(RUNNING))


def test_the_end_of_a_step_is_not_the_end_of_its_flow():
    dialogue = say.flow_events(RequestPolicy(), "flow_1")

    with pytest.raises(NotFound):
        played(dialogue, OPENED, an_event(7, "job.succeeded"), None, GONE)


@pytest.mark.parametrize(
    ("dialogue", "end"),
    [
        (say.flow_events(RequestPolicy(), "flow_1"), "flow.cancelled"),
        (say.batch_events(RequestPolicy(), "batch_1"), "batch.finished"),
    ],
)
def test_what_ended_and_was_deleted_ends_the_reading(dialogue, end):
    steps = played(dialogue, OPENED, an_event(7, end), None, GONE)

    assert ["7"] == [o.headers["Last-Event-ID"] for o in of_kind(Open, steps)[1:]]


def test_an_id_cannot_lead_elsewhere():
    (asked,) = of_kind(
        SendRequest,
        played(say.get_flow(RequestPolicy(), "../jobs?x"), an_answer(RUNNING)),
    )

    assert "/v1/flows/..%2Fjobs%3Fx" == asked.path
