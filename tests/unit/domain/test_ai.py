"""Where the JSON is in a model's answer, and what a status means."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.ai import Trouble, by_status, found_json

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=8), VALUES, max_size=4)
PROSE = st.text(
    st.characters(blacklist_characters="{}[]`", blacklist_categories=("Cs",)),
    max_size=60,
)
FENCES = st.sampled_from(["```json\n{}\n```", "```\n{}\n```", "``` JSON\r\n{}\r\n```"])


@given(VALUES)
def test_an_answer_that_is_json_is_taken_as_it_is(value):
    assert value == json.loads(found_json(f"\n {json.dumps(value)} \n"))


@given(OBJECTS, PROSE, PROSE, FENCES)
def test_json_in_a_fence_is_found_amid_prose(value, before, after, fence):
    fenced = fence.replace("{}", json.dumps(value, indent=2))

    found = found_json(f"{before}\n{fenced}\n{after}")

    assert value == json.loads(found)


@given(OBJECTS, PROSE, PROSE)
def test_json_is_found_amid_prose_without_a_fence(value, before, after):
    # A bare text of digits or quotes before it would be JSON of its own only alone.
    found = found_json(f"Sure: {before} {json.dumps(value)} {after} there you are")

    assert value == json.loads(found)


def test_a_fenced_value_goes_before_a_longer_one_beside_it():
    text = 'From [1, 2, 3, 4, 5, 6, 7, 8]:\n```json\n{"a": 1}\n```'

    assert '{"a": 1}' == found_json(text)


def test_a_fence_inside_a_text_does_not_end_it():
    value = {"code": "```py\nprint({})\n```"}

    assert value == json.loads(found_json(f"```json\n{json.dumps(value)}\n```"))


def test_without_a_fence_the_longest_value_counts():
    assert '{"title": "x"}' == found_json('As [1] says: {"title": "x"} [2]')


@pytest.mark.parametrize(
    "text", ["", "no", "{", '{"a": }', "```json\n```", "{'a': 1}", '{"a": NaN}']
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match="no JSON"):
        found_json(text)


@pytest.mark.parametrize("piece", ["[", '{"a":', '["', "```json\n[", "{]"])
def test_a_text_that_looks_like_json_all_over_does_not_take_for_ever(piece):
    # Were each place tried, this would take an hour.
    with pytest.raises(ValueError, match="no JSON"):
        found_json(piece * 1_000_000)


@pytest.mark.parametrize(
    ("status", "said", "trouble"),
    [
        (429, "", Trouble.RATE_LIMITED),
        (529, "", Trouble.RATE_LIMITED),
        (500, "", Trouble.UNAVAILABLE),
        (502, "", Trouble.UNAVAILABLE),
        (503, "", Trouble.UNAVAILABLE),
        (504, "", Trouble.UNAVAILABLE),
        (408, "", Trouble.UNAVAILABLE),
        (400, "bad", Trouble.REJECTED),
        (404, "no such model", Trouble.REJECTED),
        (422, "", Trouble.REJECTED),
        (401, "", Trouble.UNAUTHORIZED),
        (403, "", Trouble.UNAUTHORIZED),
        (400, "context_length_exceeded", Trouble.TOO_LONG),
        (413, "", Trouble.TOO_LONG),
    ],
)
def test_a_status_means_one_thing(status, said, trouble):
    assert trouble is by_status(status, said)


def test_only_what_may_pass_is_worth_another_try():
    passing = {trouble for trouble in Trouble if trouble.is_passing}

    assert {
        "AI_RATE_LIMITED",
        "AI_UNAVAILABLE",
        "AI_TIMEOUT",
        "AI_BAD_ANSWER",
    } == passing
