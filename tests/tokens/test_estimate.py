"""The token estimate beside a real tokenizer, on real texts."""

import pytest
from rs_bpe.bpe import openai

from backburner.domain.costs.tokens import estimate
from tests.tokens.conftest import unseen

MARGIN = 0.15
OTHER = {"Chinese": "English, READMEs"}
"""Of which texts the tokens per character would not do; for all others, Chinese."""


@pytest.fixture(scope="module")
def count():
    tokenizer = openai.o200k_base()
    return lambda text: len(tokenizer.encode(text))


def off(texts, counts, guess):
    return sum(map(guess, texts)) / sum(counts) - 1


def test_it_is_within_15_percent_of_a_real_tokenizer(
    kind, texts, count, record_property
):
    counts = [count(text) for text in texts]
    error = off(texts, counts, estimate)
    record_property("told", f"token estimate, {kind}: {error:+.1%} on unseen texts")
    errors = [estimate(t) / c - 1 for t, c in zip(texts, counts, strict=True)]
    near = sum(abs(error) <= MARGIN for error in errors)

    assert sum(map(len, texts)) > 10_000, "too little text to say anything"
    assert abs(error) <= 0.1, "all together"
    assert near >= 0.85 * len(texts), "and most of them alone"


def test_the_rate_of_another_script_would_not_do(kind, texts, count):
    """The control: the margin tells a good guess from a bad one, for each script."""
    others = unseen(OTHER.get(kind, "Chinese"))
    rate = sum(map(count, others)) / sum(map(len, others))
    error = off(texts, [*map(count, texts)], lambda text: rate * len(text))

    assert abs(error) > MARGIN
