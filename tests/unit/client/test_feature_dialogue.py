"""How the client polls a feature: no server needed, nobody waits."""

import threading

import pytest

from backburner.client import NotFound, PollAborted, PollTimeout
from backburner.client.dialogue import Done, Emit, Pause, SendRequest
from backburner.client.feature_dialogue import poll, watched
from backburner.client.features import Features
from tests.unit.client.test_dialogue import AWAY, a_refusal, an_answer, played

WAITS = an_answer(body={"job_id": "1", "status": "PROCESSING", "created_at": "t"})
DONE = an_answer(body={"job_id": "1", "status": "COMPLETED", "created_at": "t"})


def pauses(steps):
    return [step.seconds for step in steps if isinstance(step, Pause)]


def test_it_asks_every_five_seconds_until_the_job_has_ended():
    steps = played(poll("vpr", "1"), WAITS, WAITS, DONE)

    asked = [step for step in steps if isinstance(step, SendRequest)]
    told = [step.value["status"] for step in steps if isinstance(step, Emit)]
    assert ["/api/vpr/status/1"] * 3 == [ask.path for ask in asked]
    assert [5.0, 5.0] == pauses(steps)
    assert ["PROCESSING", "PROCESSING", "COMPLETED"] == told
    assert isinstance(steps[-1], Done)
    assert "COMPLETED" == steps[-1].value["status"]


def test_it_gives_up_after_sixty_polls_with_the_agreed_text():
    seen = []
    with pytest.raises(PollTimeout) as error:
        played(watched(poll("vpr", "1"), seen.append), *[WAITS] * 60)

    assert "Job processing timeout - please check status later" == str(error.value)
    assert 60 == len(seen)


def test_only_errors_make_it_wait_longer():
    busy = a_refusal(503)
    told = a_refusal(429, retry_after=33)
    steps = played(poll("vpr", "1"), busy, AWAY, WAITS, told, DONE)

    assert [10.0, 20.0, 5.0, 33.0] == pauses(steps)


def test_a_wait_is_bounded():
    steps = played(poll("vpr", "1"), *[AWAY] * 6, DONE)

    assert [10.0, 20.0, 40.0, 60.0, 60.0, 60.0] == pauses(steps)


def test_an_error_that_does_not_pass_is_raised():
    with pytest.raises(NotFound):
        played(poll("vpr", "1"), a_refusal(404))


class Played(Features):
    """A client whose server's answers are known."""

    def __init__(self, *answers):
        self._answers = answers

    def _run(self, dialogue):
        return played(dialogue, *self._answers)[-1].value


def test_it_is_aborted_between_two_polls():
    abort = threading.Event()
    with pytest.raises(PollAborted):
        Played(WAITS, DONE).poll_feature(
            "vpr", "1", on_progress=lambda _: abort.set(), abort=abort
        )


def test_the_control_is_not_aborted():
    job = Played(WAITS, DONE).poll_feature("vpr", "1", abort=threading.Event(), every=0)

    assert "COMPLETED" == job["status"]
