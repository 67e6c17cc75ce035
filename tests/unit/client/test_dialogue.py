"""What a client asks, when it asks again and when it gives up: no server needed."""

import json

import pytest

from backburner.client.dialogue import (
    PAUSES,
    Answer,
    Done,
    Emit,
    Open,
    Pause,
    Read,
    RequestPolicy,
    SendRequest,
    StreamMessage,
    advance,
)
from backburner.client.errors import (
    ClientError,
    Conflict,
    Denied,
    NotFound,
    RateLimited,
    Unavailable,
)
from backburner.domain.events.text import Piece

AWAY = Unavailable("nobody is there", code="UNREACHABLE")
JOB = {"id": "job_1", "state": "queued"}
ENDED = {"id": "job_1", "state": "succeeded", "output": 7}


def an_answer(status=200, body=JOB, **headers):
    return Answer(status, headers, json.dumps(body).encode())


def a_refusal(status, code="CODE", **fields):
    return an_answer(status, {"detail": "no", "code": code, **fields})


def an_event(n, kind="job.progress", **data):
    return StreamMessage(str(n), json.dumps({"n": n, "type": kind, "data": data}))


def a_delta(n, epoch, offset, text):
    return an_event(n, "job.output.delta", epoch=epoch, offset=offset, text=text)


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


@pytest.mark.parametrize("failure", [AWAY, a_refusal(503), a_refusal(429)])
def test_what_is_idempotent_is_asked_again(failure):
    steps = played(RequestPolicy().get("job_1"), failure, failure, an_answer())

    assert JOB == steps[-1].value
    assert 3 == len(of_kind(SendRequest, steps))
    assert 2 == len(of_kind(Pause, steps))


@pytest.mark.parametrize("failure", [a_refusal(400), a_refusal(404), a_refusal(401)])
def test_a_last_word_is_not_questioned(failure):
    with pytest.raises(ClientError):
        played(RequestPolicy().get("job_1"), failure)


def test_there_are_no_more_tries_than_agreed():
    with pytest.raises(Unavailable):
        played(RequestPolicy(retries=2).get("job_1"), AWAY, AWAY, AWAY)


def test_a_submit_with_a_key_is_repeated_under_that_key():
    steps = played(RequestPolicy().submit("echo", {}, "k", {}), AWAY, an_answer())
    asked = of_kind(SendRequest, steps)

    assert asked[0] == asked[1]
    assert "k" == asked[0].headers["Idempotency-Key"]


@pytest.mark.parametrize(
    "dialogue",
    [
        RequestPolicy().submit("echo", {}, None, {}),
        RequestPolicy().retry("job_1"),
        RequestPolicy().retry_many({"capability": "echo"}),
    ],
)
def test_what_could_happen_twice_is_asked_once(dialogue):
    with pytest.raises(Unavailable):
        played(dialogue, AWAY)


def test_a_dry_run_and_a_cancel_may_be_repeated():
    dry = played(RequestPolicy().retry_many({"dry_run": True}), AWAY, an_answer())
    cancelled = played(RequestPolicy().cancel("job_1"), AWAY, an_answer())

    assert (2, 2) == (
        len(of_kind(SendRequest, dry)),
        len(of_kind(SendRequest, cancelled)),
    )


@pytest.mark.parametrize(
    "refusal",
    [
        an_answer(429, {}, **{"retry-after": "7"}),
        a_refusal(503, retry_after=7),
    ],
)
def test_retry_after_is_honoured(refusal):
    steps = played(RequestPolicy().get("job_1"), refusal, an_answer())

    assert [Pause(7.0)] == of_kind(Pause, steps)


def test_a_server_that_asks_for_too_much_patience_is_refused_it():
    with pytest.raises(RateLimited) as refusal:
        played(
            RequestPolicy(longest_pause=5).get("job_1"), a_refusal(429, retry_after=6)
        )

    assert 6 == refusal.value.retry_after


def test_pauses_differ_from_one_client_to_the_next():
    pauses = {
        of_kind(Pause, played(RequestPolicy().get("job_1"), AWAY, an_answer()))[
            0
        ].seconds
        for _ in range(20)
    }

    assert len(pauses) > 1
    assert max(pauses) <= PAUSES[0]


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        (Denied, a_refusal(401)),
        (Denied, a_refusal(403)),
        (NotFound, a_refusal(404)),
        (Conflict, a_refusal(409)),
        (Conflict, a_refusal(422, "IDEMPOTENCY_CONFLICT")),
        (RateLimited, a_refusal(429)),
        (Unavailable, a_refusal(507)),
        (ClientError, a_refusal(422, "INVALID_INPUT")),
    ],
)
def test_a_refusal_is_an_error_of_its_kind(kind, refusal):
    with pytest.raises(ClientError) as raised:
        played(RequestPolicy(retries=0).get("job_1"), refusal)

    assert kind is type(raised.value)
    assert refusal.status == raised.value.status


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"detail": null}'])
def test_a_refusal_in_no_known_shape_has_its_status_and_request_id(body):
    with pytest.raises(ClientError) as raised:
        played(RequestPolicy().get("job_1"), Answer(418, {"x-request-id": "r-1"}, body))

    assert ("HTTP_ERROR", 418, "r-1") == (
        raised.value.code,
        raised.value.status,
        raised.value.request_id,
    )


def test_pages_are_followed_to_the_last():
    first = an_answer(200, {"items": [1, 2], "next_cursor": "c"})
    last = an_answer(200, {"items": [3], "next_cursor": None})

    steps = played(RequestPolicy().jobs({"tag": "t", "queue": None}), first, AWAY, last)

    assert [1, 2, 3] == [told.value for told in of_kind(Emit, steps)]
    assert {"tag": "t", "cursor": "c"} == of_kind(SendRequest, steps)[-1].params


def test_waiting_goes_on_over_an_absence():
    steps = played(
        RequestPolicy().follow("job_1", None),
        AWAY,
        AWAY,
        AWAY,
        an_answer(),
        AWAY,
        an_answer(body=ENDED),
    )

    assert ENDED == steps[-1].value
    assert ["queued", "succeeded"] == [t.value["state"] for t in of_kind(Emit, steps)]


def test_a_wait_whose_time_is_over_does_not_linger():
    with pytest.raises(Unavailable):
        played(RequestPolicy().follow("job_1", 0), AWAY)


def test_a_stream_goes_on_after_the_last_event_it_told():
    steps = played(
        RequestPolicy().events("job_1"),
        *(an_answer(), an_event(1), an_event(2), AWAY),
        AWAY,
        *(an_answer(), an_event(3, "job.succeeded"), None),
        an_answer(204),
    )

    assert [1, 2, 3] == [told.value["n"] for told in of_kind(Emit, steps)]
    assert [None, "2", "2", "3"] == [
        opened.headers.get("Last-Event-ID") for opened in of_kind(Open, steps)
    ]


def test_a_stream_of_all_goes_on_where_it_began_if_nothing_was_told():
    dialogue = RequestPolicy().all_events(None)
    began = [advance(dialogue, None), advance(dialogue, an_answer())]
    began += [advance(dialogue, StreamMessage("41", "")), advance(dialogue, AWAY)]
    again = advance(dialogue, None)

    assert [Open, Read, Read, Pause] == [type(step) for step in began]
    assert {"Last-Event-ID": "41"} == again.headers


def test_a_server_that_ends_streams_at_once_is_not_pressed():
    steps = played(RequestPolicy().events("job_1"), an_answer(), None, an_answer(204))

    assert 1 == len(of_kind(Pause, steps))


def test_a_job_deleted_after_its_end_is_the_end():
    steps = played(
        RequestPolicy().events("job_1"),
        *(an_answer(), an_event(1, "job.failed"), None),
        a_refusal(404),
    )

    assert Done(None) == steps[-1]


def test_a_job_deleted_before_its_end_was_told_is_not_found():
    with pytest.raises(NotFound):
        played(
            RequestPolicy().events("job_1"),
            *(an_answer(), an_event(1, "job.started"), None),
            a_refusal(404),
        )


def test_an_endless_absence_ends_a_stream():
    with pytest.raises(Unavailable):
        played(RequestPolicy().events("job_1"), *[AWAY] * (len(PAUSES) + 1))


def test_a_text_goes_on_over_an_absence_and_begins_anew_with_an_attempt():
    steps = played(
        RequestPolicy().pieces("job_1"),
        *(an_answer(), an_event(1, "job.queued"), an_event(2, "job.started")),
        *(a_delta(3, 2, 0, "one"), AWAY),
        *(an_answer(), a_delta(4, 2, 3, " two"), an_event(5, "job.stalled")),
        *(an_event(6, "job.started"), a_delta(7, 6, 0, "three"), None),
        *(an_answer(), an_event(8, "job.succeeded"), None),
        an_answer(204),
    )

    assert [
        Piece("one"),
        Piece(" two"),
        Piece("three", is_reset=True),
    ] == [told.value for told in of_kind(Emit, steps)]
    assert Done("three") == steps[-1]
    assert [None, "3", "7", "8"] == [
        opened.headers.get("Last-Event-ID") for opened in of_kind(Open, steps)
    ]


def test_a_text_of_no_job_is_not_found():
    with pytest.raises(NotFound):
        played(RequestPolicy().pieces("job_1"), a_refusal(404))
