"""The token estimate beside a real tokenizer, on real texts."""

import pytest
from rs_bpe.bpe import openai

from backburner.domain.tokens import estimate

MARGIN = 0.15


@pytest.fixture(scope="module")
def count():
    tokenizer = openai.o200k_base()
    return lambda text: len(tokenizer.encode(text))


def off(texts, counts, guess):
    return sum(map(guess, texts)) / sum(counts) - 1


def test_it_is_within_15_percent_of_a_real_tokenizer(texts, count):
    counts = [count(text) for text in texts]
    errors = [estimate(t) / c - 1 for t, c in zip(texts, counts, strict=True)]
    near = sum(abs(error) <= MARGIN for error in errors)

    assert sum(map(len, texts)) > 10_000, "too little text to say anything"
    assert abs(off(texts, counts, estimate)) <= 0.1, "all together"
    assert near >= 0.85 * len(texts), "and most of them alone"


@pytest.mark.parametrize("texts", ["Chinese"], indirect=True)
def test_characters_by_four_would_not_do(texts, count):
    """The control: the margin tells a good guess from a bad one."""
    assert off(texts, map(count, texts), lambda text: len(text) / 4) < -MARGIN
