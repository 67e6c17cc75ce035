"""What providers' answers say, and what is made of those that say nonsense."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.lanes.rate_limit_headers import (
    LARGEST_LIMIT,
    LONGEST_WAIT,
    RateLimitInfo,
    rate_limit_info,
)

NOW = 1_767_268_800_000  # 2026-01-01T12:00:00Z
NAMES = (
    "retry-after",
    "Retry-After-Ms",
    "x-ratelimit-reset",
    "X-RateLimit-Remaining",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
)
HOSTILE = (
    "-1",
    "NaN",
    "inf",
    "1e308",
    "9" * 40,
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+23:59",
    "١٢",
    "1_000",
    "0x10",
    "",
    " ",
    "99999999h",
    "\x00",
)


def refused(headers=None, body=None):
    return rate_limit_info(429, headers, body, now=NOW)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7_000),
        ({"retry-after": "1.5"}, 1_500),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30_000),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 250),
        ([(b"Retry-After", b"3"), (b"Retry-After", b"5")], 5_000),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"},
         360_000),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"},
         120),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "6m0s"},
         None),
        ({"anthropic-ratelimit-requests-remaining": "0",
          "anthropic-ratelimit-requests-reset": "2026-01-01T12:00:20Z"}, 20_000),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1767268810"}, 10_000),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12"}, 12_000),
        ({}, None),
        (None, None),
    ],
)  # fmt: skip
def test_the_wait_is_read_however_it_is_told(headers, wait):
    assert RateLimitInfo(is_refused=True, wait=wait) == refused(headers)


def test_geminis_delay_is_read_from_the_body():
    details = [{"@type": "…Help"}, {"@type": "…RetryInfo", "retryDelay": "34.07s"}]
    body = {"error": {"code": 429, "details": details}}

    assert 34_070 == refused(body=body).wait
    assert (
        34_070 == refused(body='{"error":{"details":[{"retryDelay":"34.07s"}]}}').wait
    )
    assert 34_070 == refused(body=[body]).wait


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        "[]",
        "null",
        "7",
        '{"error": 7}',
        '{"error":{"details":{}}}',
        "[" * 9_000,
        {"error": {"details": [7, {"retryDelay": 7}, {"retryDelay": "soon"}]}},
    ],
)
def test_a_body_that_tells_nothing_is_ignored(body):
    assert RateLimitInfo(is_refused=True) == refused(body=body)


@pytest.mark.parametrize("status", [200, 400, 404, 500, 503])
def test_only_429_and_529_refuse(status):
    assert RateLimitInfo() == rate_limit_info(status, {"retry-after": "9"}, now=NOW)
    assert rate_limit_info(529, {}, now=NOW).is_refused


def test_limits_are_read_from_any_answer():
    openai = {"x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "150000"}
    anthropic = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-tokens-limit": "40000",
    }

    assert RateLimitInfo(requests=60, tokens=150_000) == rate_limit_info(
        200, openai, now=NOW
    )
    assert RateLimitInfo(requests=50, tokens=40_000) == rate_limit_info(
        200, anthropic, now=NOW
    )


def test_a_limit_for_a_day_is_taken_for_what_a_minute_brings():
    headers = {
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "5000",
        "x-ratelimit-reset-requests": "12h0m0s",
    }

    assert 83 == rate_limit_info(200, headers, now=NOW).requests


def test_an_answer_that_was_the_last_one_says_when_there_are_more():
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"}

    assert RateLimitInfo(wait=30_000) == rate_limit_info(200, headers, now=NOW)


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_value_is_bounded_or_ignored(name, value):
    remaining = {
        "x-ratelimit-remaining": "0",
        "x-ratelimit-remaining-requests": "0",
        "anthropic-ratelimit-requests-remaining": "0",
    }
    found = refused(remaining | {name: value})

    assert found.wait is None or 0 <= found.wait <= LONGEST_WAIT
    assert found.requests is None or 1 <= found.requests <= LARGEST_LIMIT


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.sampled_from(HOSTILE) | st.text(string.printable, max_size=30)
            | st.integers(-10, 10**14).map(str),
        ),
        max_size=40,
    ),
    st.sampled_from([200, 429, 529]),
    st.integers(0, 4 * 10**12),
)  # fmt: skip
def test_no_answer_breaks_the_reader_or_its_bounds(headers, status, now):
    found = rate_limit_info(status, headers, now=now)

    assert found.is_refused == (status != 200)
    assert found.wait is None or 0 <= found.wait <= LONGEST_WAIT
    assert found.requests is None or 1 <= found.requests <= LARGEST_LIMIT
    assert found.tokens is None or 1 <= found.tokens <= LARGEST_LIMIT


def test_a_flood_of_values_is_cut():
    found = refused([("retry-after", "1")] * 8 + [("retry-after", "3000")] * 10_000)

    assert 1000 == found.wait
