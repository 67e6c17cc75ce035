import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.events import event
from backburner.domain.events.text import LONGEST_DELTA, Piece, Text, deltas


def read(*told):
    """Fold what is told, numbered from 1; return the text and its pieces."""
    text = Text()
    pieces = [text.take(n, kind, data) for n, (kind, data) in enumerate(told, 1)]
    return str(text), [piece for piece in pieces if piece is not None]


def started():
    return event.STARTED, {"attempt": 1, "generation": 0, "worker": "w_1"}


def delta(epoch, offset, text, **more):
    return event.DELTA, {"epoch": epoch, "offset": offset, "text": text, **more}


QUEUED = (event.QUEUED, {})
FIRST = (QUEUED, started(), delta(2, 0, "one"))


def test_a_job_that_said_nothing_has_no_text():
    assert ("", []) == read(QUEUED, started(), (event.SUCCEEDED, {}))


def test_deltas_are_put_together_in_order():
    progress = (event.PROGRESS, {"done": 1, "total": 2})

    text, pieces = read(*FIRST, progress, delta(2, 3, " two"), (event.SUCCEEDED, {}))

    assert "one two" == text
    assert [Piece("one"), Piece(" two")] == pieces


AGAIN = ((event.STALLED, {}), started())


def test_another_attempt_keeps_the_text_until_it_says_something_else():
    assert ("one", [Piece("one")]) == read(*FIRST, *AGAIN)
    replaced = delta(5, 0, "anew", replaces=True)
    text, pieces = read(*FIRST, *AGAIN, replaced)
    assert ("anew", Piece("anew", is_reset=True)) == (text, pieces[-1])


def test_another_attempt_that_says_the_same_goes_on_from_there():
    text, pieces = read(*FIRST, *AGAIN, delta(5, 3, " two"))
    assert ("one two", [Piece("one"), Piece(" two")]) == (text, pieces)


def test_an_attempt_of_an_earlier_release_begins_at_offset_0():
    text, pieces = read(*FIRST, *AGAIN, delta(5, 0, "anew"))
    assert ("anew", Piece("anew", is_reset=True)) == (text, pieces[-1])


def test_an_attempt_after_a_silent_one_drops_nothing():
    text, pieces = read(QUEUED, started(), (event.STALLED, {}), started())

    assert ("", []) == (text, pieces)


def test_a_reader_that_missed_the_start_learns_of_it_from_the_text():
    text = Text()
    text.take(3, *delta(2, 0, "one"))

    piece = text.take(6, *delta(5, 0, "anew"))

    assert (Piece("anew", is_reset=True), "anew") == (piece, str(text))


@pytest.mark.parametrize("result", ["other", ""])
def test_a_correction_stands_for_all_that_was_said(result):
    text, pieces = read(*FIRST, delta(2, 0, result, replaces=True))

    assert result == text
    assert Piece(result, is_reset=True) == pieces[-1]


def test_what_was_read_before_changes_nothing():
    text = Text()
    for n, told in [*enumerate(FIRST, 1), *enumerate(FIRST, 1)]:
        text.take(n, *told)

    assert "one" == str(text)


@pytest.mark.parametrize("offset", [0, 2, 4])
def test_a_text_with_something_missing_is_not_taken_for_the_text(offset):
    with pytest.raises(ValueError, match="event 4 does not follow 3 characters"):
        read(*FIRST, delta(2, offset, "two"))


@given(st.text(), st.integers(1, 9), st.integers(0, 9))
def test_a_short_text_is_one_delta(text, epoch, offset):
    told = list(deltas(text, epoch=epoch, offset=offset))

    assert [{"epoch": epoch, "offset": offset, "text": text}] == told


@pytest.mark.parametrize("size", [LONGEST_DELTA, LONGEST_DELTA + 1, 3 * LONGEST_DELTA])
@pytest.mark.parametrize("replaces", [False, True])
def test_a_long_text_is_split_and_read_back_whole(size, replaces):
    whole = ("grüße🙂" * size)[:size]
    told = [
        (event.DELTA, data)
        for data in deltas(whole, epoch=2, offset=0, replaces=replaces)
    ]

    text, pieces = read(QUEUED, started(), *told)

    assert whole == text
    assert -(-size // LONGEST_DELTA) == len(pieces)
    assert max(len(piece.text) for piece in pieces) == LONGEST_DELTA
    assert [replaces] + [False] * (len(told) - 1) == [
        data.get("replaces", False) for _, data in told
    ]
