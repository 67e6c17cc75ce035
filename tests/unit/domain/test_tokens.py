"""The token estimate: bounds that hold for any text. Real texts are in tests/tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.costs.tokens import LONGEST_READ, estimate
from tests.unit.domain.growing import QUADRATIC, growth

texts = st.text(max_size=300)


@given(texts)
def test_it_is_never_negative_and_never_far_from_the_bytes(text):
    size = len(text.encode("utf-8", "surrogatepass"))

    assert 0 <= estimate(text) <= 1 + 1.5 * size, "a token has a byte at least"


@given(texts, texts)
def test_two_texts_together_count_about_what_they_count_alone(one, other):
    both = estimate(one + other)
    alone = estimate(one) + estimate(other)

    assert abs(both - alone) <= 8 + 0.4 * min(alone, 40), "what changes is at the seam"


@given(st.lists(st.sampled_from(["word", "слово", "\u5b57", "7", ", ", "\n"])))
def test_more_words_are_more_tokens(words):
    lengths = [estimate(" ".join(words[:n])) for n in range(len(words) + 1)]

    assert lengths == sorted(lengths)


def test_nothing_counts_nothing():
    assert 0 == estimate("")


@pytest.mark.parametrize(
    "unit", ["a", " ", "\n", " \n", "-", "\u0430b", "\u5b57", "7", "_", "\U0001f600"]
)
def test_the_time_to_weigh_anything_grows_with_its_length_only(unit, monkeypatch):
    monkeypatch.setattr("backburner.domain.costs.tokens.LONGEST_READ", 2_000_000)

    assert growth(estimate, unit) < QUADRATIC


def test_what_grows_with_the_square_of_the_length_is_noticed():
    def square(text):
        return [text.count("c") for _ in range(len(text) // 50)]

    assert growth(square, "ab") > QUADRATIC


def test_what_is_too_long_is_inferred_from_slices():
    line = "a line like any other, with some words in it\n"
    text = line * (5 * LONGEST_READ // len(line))

    assert abs(estimate(text) / (estimate(line) * len(text) / len(line)) - 1) < 0.05
