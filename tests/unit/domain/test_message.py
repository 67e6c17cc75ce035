"""What a message means, whatever it holds."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.blobs.blob import BlobKey, Reference
from backburner.domain.errors import Problem
from backburner.domain.groups.flow import FROM_NEEDS
from backburner.domain.jobs.job import JobState
from backburner.domain.message import (
    LONGEST_BODY,
    WORK_AVAILABLE,
    Original,
    Refused,
    Request,
    Returned,
    WorkAvailable,
    dead_letter,
    read,
    refusal,
)
from backburner.testing.samples import NOON, a_job

FULL = {
    "capability": "parse-task",
    "input": {"naturalLanguage": "call Ada tomorrow"},
    "requestId": "r-1",
    "userId": "u-7",
    "callbackUrl": "https://tasks.example/hook",
    "tokenReservation": {"tokensReserved": 500, "windowStartTimestamp": 1_767_268_800},
}
LEAST = {"capability": "greet", "input": None}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
names = st.sampled_from([*FULL, "backburner", "job", "generation", "body", "base64"])
words = st.sampled_from(["work", "dead-letter", "refused", "greet"])
objects = st.dictionaries(names, values | words)


def written(value):
    return json.dumps(value).encode()


def failed(**fields):
    usual = a_job(
        state=JobState.FAILED,
        finished_at=NOON,
        attempt=3,
        error=Problem("PERMANENT", "it is broken"),
        input='{"name":"Ada"}',
    )
    return replace(usual, **fields)


@given(st.binary() | objects.map(written), st.text())
def test_whatever_lies_there_has_a_meaning_and_can_be_written_as_a_letter(body, name):
    found = read(body, name)

    if isinstance(found, Refused):
        letter = refusal(found, "greetings", NOON)
        again = read(letter)
        assert isinstance(again, Refused), "moved back unchanged, it is refused again"
        assert (found.code, found.reason) == (again.code, again.reason)
        assert found.original.body == again.original.body
        assert letter == refusal(
            again._replace(original=found.original), "greetings", NOON
        ), "letters do not grow by being moved"
    else:
        assert isinstance(found, WorkAvailable | Returned | Request)


def test_every_field_of_a_request_is_read():
    found = read(written(FULL), "m-1")

    assert isinstance(found, Request)
    assert {"naturalLanguage": "call Ada tomorrow"} == json.loads(found.input)
    assert ("parse-task", "r-1", "u-7", "https://tasks.example/hook") == (
        found.capability,
        found.request_id,
        found.user,
        found.callback,
    )
    assert (500, "1767268800") == (found.tokens, found.window)
    assert Original("m-1", written(FULL)) == found.original


def test_a_request_needs_a_capability_and_an_input_only():
    found = read(written(LEAST))

    assert Request(Original("", written(LEAST)), "greet", b"null") == found


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"", "MALFORMED_BODY", "not valid JSON"),
        (b"hello", "MALFORMED_BODY", "not valid JSON"),
        (b"\xff\xfe{}", "MALFORMED_BODY", "not valid JSON"),
        (written(LEAST).decode().encode("utf-16"), "MALFORMED_BODY", "not valid JSON"),
        (b'{"capability":"greet","input":NaN}', "MALFORMED_BODY", "not valid JSON"),
        (b'{"capability":"greet","input":1e999}', "MALFORMED_BODY", "number"),
        (b'{"capability":"greet","input":"\\ud800"}', "MALFORMED_BODY", "text"),
        (b'{"capability":"greet","input":"\\u0000"}', "MALFORMED_BODY", "NUL"),
        (b'{"input":' + b"[" * 64 + b"]" * 64 + b"}", "MALFORMED_BODY", "deeper"),
        (b"[" * 100_000, "MALFORMED_BODY", "not valid JSON"),
        (b"1" * 5_000, "MALFORMED_BODY", "not valid JSON"),
        (b"[]", "INVALID_INPUT", "JSON object"),
        (b"{}", "INVALID_INPUT", "input: is missing"),
        (
            b'{"input":1}',
            "INVALID_INPUT",
            "capability: must be a text of 1 to 200 characters",
        ),
        (written(LEAST | {"prio": 1}), "INVALID_INPUT", "'prio': is not a field here"),
        (written(LEAST | {"backburner": "hi"}), "INVALID_INPUT", "backburner: only"),
        (written(LEAST | {"capability": 1}), "INVALID_INPUT", "capability: must be"),
        (written(LEAST | {"capability": "a\n"}), "INVALID_INPUT", "be printable"),
        (written(LEAST | {"requestId": 7}), "INVALID_INPUT", "requestId: must be"),
        (written(LEAST | {"requestId": ""}), "INVALID_INPUT", "requestId: must be"),
        (written(LEAST | {"requestId": "é"}), "INVALID_INPUT", "requestId: must be"),
        (written(LEAST | {"requestId": "r" * 256}), "INVALID_INPUT", "1 to 255"),
        (written(LEAST | {"userId": ["a"]}), "INVALID_INPUT", "userId: must be"),
        (written(LEAST | {"callbackUrl": {}}), "INVALID_INPUT", "callbackUrl: must be"),
        (
            written(LEAST | {"tokenReservation": 5}),
            "INVALID_INPUT",
            "tokenReservation: must be an object",
        ),
        (
            written(LEAST | {"tokenReservation": {"tokensReserved": True}}),
            "INVALID_INPUT",
            "tokenReservation.tokensReserved: must be a whole number",
        ),
        (
            written(LEAST | {"tokenReservation": {"tokensReserved": 5}}),
            "INVALID_INPUT",
            "tokenReservation.windowStartTimestamp: must be a whole number",
        ),
        (
            written(LEAST | {"tokenReservation": {"user": "x"}}),
            "INVALID_INPUT",
            "tokenReservation.'user': is not a field here",
        ),
        (
            b'{"backburner":"dead-letter","job":"job_1"}',
            "INVALID_INPUT",
            "generation: must be a whole number",
        ),
        (b'{"backburner":"refused"}', "INVALID_INPUT", "body: the refused message"),
        (
            b'{"backburner":"refused","base64":"*"}',
            "INVALID_INPUT",
            "body: the refused message",
        ),
    ],
)
def test_what_cannot_be_taken_says_why(body, code, reason):
    found = read(body)

    assert isinstance(found, Refused)
    assert code == found.code
    assert reason in found.reason


def test_a_body_over_the_limit_is_not_even_parsed():
    found = read(written(LEAST), limit=10)

    assert isinstance(found, Refused)
    assert ("BODY_TOO_LARGE", "the body may have at most 10 bytes") == (
        found.code,
        found.reason,
    )


def test_a_hint_is_a_hint_however_it_is_spaced():
    assert WorkAvailable() == read(WORK_AVAILABLE) == read(b' {"backburner" : "work"} ')


def test_a_dead_letter_that_comes_back_asks_for_a_retry():
    job = failed(generation=2)

    assert Returned(job.id, 2) == read(dead_letter(job), f"{job.id}.2")


def test_a_dead_letter_shows_the_job_to_whoever_has_only_the_broker():
    job = failed()

    assert {
        "backburner": "dead-letter",
        "job": job.id,
        "generation": 0,
        "queue": job.queue,
        "capability": job.capability,
        "input": {"name": "Ada"},
        "error": {"code": "PERMANENT", "message": "it is broken"},
        "attempts": 3,
        "failedAt": "2026-01-01T12:00:00.000Z",
    } == json.loads(dead_letter(job))


def test_of_a_large_input_a_dead_letter_tells_the_size():
    large = Reference(BlobKey("job_1", "input"), 70_000)
    told = json.loads(dead_letter(failed(input=str(large))))

    assert (None, 70_000) == (told["input"], told["inputBytes"])


def test_a_step_without_an_input_of_its_own_has_a_letter_too():
    assert json.loads(dead_letter(failed(input=FROM_NEEDS)))["input"] is None


@pytest.mark.parametrize("value", ["plain", "\x01\x02" * 50, '"\\' * 50])
def test_a_refused_message_that_comes_back_is_read_as_it_was(value):
    body = written(LEAST | {"input": value})
    refused = Refused(Original("m-1", body), "UNKNOWN_CAPABILITY", "not there yet")
    letter = refusal(refused, "greetings", NOON)

    assert read(body, "m-1") == read(letter, "somebody-else's")


def test_a_refused_message_that_is_no_text_is_kept_as_it_is():
    body = b"\xff" * 10
    letter = refusal(Refused(Original("", body), "X", "y"), "greetings", NOON)

    assert "base64" in json.loads(letter)
    assert read(body) == read(letter)


def test_somebody_may_mend_the_body_of_a_refused_message():
    letter = json.loads(refusal(read(b"{"), "greetings", NOON))
    letter["body"] = json.dumps(LEAST)

    assert read(written(LEAST)) == read(written(letter))


@pytest.mark.parametrize("piece", [b"\xff", b"\x00", b'"', "é".encode()])
def test_a_large_message_is_cut_to_what_every_broker_takes(piece):
    body = piece * (4 * LONGEST_BODY)
    letter = refusal(read(body), "greetings", NOON)
    again = read(letter)

    assert len(letter) < 256 * 1024
    assert json.loads(letter)["cut"]
    assert isinstance(again, Refused)
    assert "only the beginning of its body was kept" in again.reason
    assert json.loads(refusal(again, "greetings", NOON))["cut"], "it stays marked"
