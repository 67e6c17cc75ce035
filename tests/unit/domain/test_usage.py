"""What a call used is checked, and sums never take the unknown for nothing."""

import math

import pytest

from backburner.domain.costs.usage import (
    LONGEST_NAME,
    MOST_TOKENS,
    NOTHING,
    Spent,
    Usage,
    dollars,
    usage,
)


def test_a_call_is_taken_as_its_provider_counted_it():
    assert Usage("m", 10, 3, "p", 4) == usage("m", 10, 3, "p", 4)


@pytest.mark.parametrize(
    "count",
    [-1, MOST_TOKENS + 1, 10**400, math.nan, math.inf, 1.5, "7", None, True],
)
@pytest.mark.parametrize("which", ["input_tokens", "output_tokens", "cached_tokens"])
def test_a_count_that_is_none_is_refused(which, count):
    told = {"input_tokens": MOST_TOKENS, "output_tokens": 1, which: count}

    with pytest.raises(ValueError, match="token count"):
        usage("m", **told)


def test_more_cached_than_was_sent_is_refused():
    with pytest.raises(ValueError, match="cached"):
        usage("m", 10, 1, cached_tokens=11)


def test_a_name_is_cut_and_made_fit_to_be_stored():
    called = usage("m\x00\ud800\n" + "x" * 10_000, 1, 1, "p" * 10_000)

    assert "m???" + "x" * (LONGEST_NAME - 4) == called.model
    assert LONGEST_NAME == len(called.provider)


def test_a_sum_with_an_unknown_part_is_unknown_but_for_what_is_known():
    known = Spent(calls=1, known_cost=5, models=("a",), price_versions=("v",))
    unknown = Spent(calls=1, unpriced=1, models=("b",))
    both = known + unknown

    assert (5, None) == (known.cost, both.cost)
    assert (5, 1, ("a", "b"), ("v",)) == (
        both.known_cost,
        both.unpriced,
        both.models,
        both.price_versions,
    )
    assert known == known + NOTHING


@pytest.mark.parametrize(
    ("micro", "written"),
    [
        (None, None),
        (0, "0.000000"),
        (1, "0.000001"),
        (12_345_678, "12.345678"),
        (-1, "-0.000001"),
        (10**15, "1000000000.000000"),
    ],
)
def test_money_is_written_to_the_micro_dollar(micro, written):
    assert written == dollars(micro)
