"""Replies as messages of Discord: short enough, in order, nothing lost."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from backburner_apps.chat.discord.splitting import (
    CUT,
    LIMIT,
    MORE,
    length,
    preview,
    split,
)

FAMILY = "👨‍👩‍👧‍👦"
TEXTS = st.text(st.sampled_from("ab \n`é🦊́‍."), max_size=300)


def bare(parts):
    """Return what the parts say, without white space and code fences."""
    return re.sub(r"\s|```", "", "".join(parts))


def test_a_short_reply_is_one_message():
    assert ["a reply"] == split("  a reply\n")


def test_a_blank_reply_is_no_message():
    assert [] == split(" \n ")


def test_a_reply_is_split_at_the_last_empty_line_that_fits():
    assert ["a" * 8, "b\nc d e f g"] == split(f"{'a' * 8}\n\nb\nc d e f g", 16)


def test_without_lines_it_is_split_at_a_space():
    assert ["aaa bbb", "ccc ddd"] == split("aaa bbb ccc ddd", 13)


def test_two_thousand_characters_are_one_message_and_one_more_are_two():
    assert ["x" * LIMIT] == split("x" * LIMIT)
    parts = split("x" * (LIMIT + 1))
    assert "x" * (LIMIT + 1) == "".join(parts)
    assert 2 == len(parts)


def test_emoji_count_twice_as_discord_counts_them():
    parts = split("🦊" * 1001)
    assert all(length(part) <= LIMIT for part in parts)
    assert "🦊" * 1001 == "".join(parts)


def test_characters_that_are_shown_as_one_stay_together():
    parts = split(FAMILY * 30, 60)
    assert FAMILY * 30 == "".join(parts)
    assert all(part.count("👨") == part.count("👦") for part in parts)


def test_a_code_block_is_closed_and_opened_again():
    lines = "\n".join(f"line {n}" for n in range(20))
    parts = split(f"See:\n```python\n{lines}\n```\nDone.", 100)
    assert len(parts) > 1
    assert all(part.count("```") % 2 == 0 for part in parts)
    assert all(part.startswith("```python\n") for part in parts[1:-1])
    assert re.sub(r"\s", "", f"See:python{lines}Done.") == bare(
        [parts[0], *(part.removeprefix("```python\n") for part in parts[1:])]
    )


def test_what_is_too_long_for_ten_messages_is_cut_and_says_so():
    parts = split("word " * 10_000)
    assert 10 == len(parts)
    assert parts[-1].endswith(CUT)
    assert all(length(part) <= LIMIT for part in parts)


def test_a_preview_shows_that_more_comes():
    assert f"so far{MORE}" == preview("so far ")
    assert "" == preview("\n")
    long = preview("🦊" * 5000)
    assert long.endswith(MORE)
    assert length(long) <= LIMIT


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(20, 80))
def test_any_reply_is_split_into_messages_that_fit_and_say_all_of_it(text, limit):
    parts = split(text, limit, most=1000)
    assert all(part.strip() for part in parts)
    assert all(length(part) <= limit for part in parts)
    assert re.sub(r"`", "", bare(parts)) == re.sub(r"\s|`", "", text)
