"""What a key looks like, and what is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.auth import key as keys
from backburner.domain.auth.key import ApiKey, Presented
from backburner.domain.jobs.job import Owner

SECRET = bytes(range(32))
TEXT = keys.write("AbCd1234", SECRET)


def a_key(**fields):
    usual = {
        "id": "AbCd1234",
        "name": "a key",
        "tenant": "t",
        "user": None,
        "scopes": frozenset({"jobs:read"}),
        "digest": "d",
        "created_at": 0,
    }
    return ApiKey(**(usual | fields))


def test_a_key_has_a_prefix_an_id_a_secret_and_a_sum():
    prefix, kind, key_id, secret, total = TEXT.split("_")

    assert ("bb", "live", "AbCd1234", 43, 6) == (
        prefix,
        kind,
        key_id,
        len(secret),
        len(total),
    )
    assert keys.LENGTH == len(TEXT)


@given(st.binary(min_size=32, max_size=32), st.integers(min_value=0))
def test_what_is_written_is_read_again(secret, chance):
    key_id = keys.new_id(chance)
    text = keys.write(key_id, secret)

    assert (key_id, text.split("_")[3]) == keys.read(text)


@given(st.integers(0, keys.LENGTH - 1), st.characters(codec="utf-8"))
def test_one_wrong_character_is_seen_without_asking_anybody(place, character):
    wrong = TEXT[:place] + character + TEXT[place + 1 :]

    assert (wrong == TEXT) == (keys.read(wrong) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bb_live_",
        TEXT[:-1],
        TEXT[1:],
        TEXT + "x",
        f" {TEXT}",
        TEXT.replace("live", "test"),
        TEXT.upper(),
        "_" * keys.LENGTH,
        "é" * keys.LENGTH,
    ],
)
def test_what_is_no_key_is_not_taken_for_one(text):
    assert keys.read(text) is None


@given(st.text(max_size=100))
def test_any_text_can_be_read(text):
    assert keys.read(text) is None


def test_the_digest_depends_on_the_pepper_the_id_and_the_secret():
    shown = keys.read(TEXT)
    made = {
        keys.digest(b"one", shown),
        keys.digest(b"two", shown),
        keys.digest(b"one", Presented("AbCd1235", shown.secret)),
        keys.digest(b"one", Presented(shown.id, shown.secret[::-1])),
    }

    assert 4 == len(made)
    assert keys.is_same(keys.digest(b"one", shown), keys.digest(b"one", shown))
    assert not keys.is_same(keys.digest(b"one", shown), keys.digest(b"two", shown))


@pytest.mark.parametrize(
    ("fields", "is_good"),
    [
        ({}, True),
        ({"expires_at": 11}, True),
        ({"expires_at": 10}, False),
        ({"revoked_at": 11}, False),
    ],
)
def test_a_key_is_good_until_it_expires_or_is_revoked(fields, is_good):
    assert is_good == a_key(**fields).is_good(10)


def test_a_key_acts_as_its_user_or_else_as_user_1():
    assert Owner("t", "u") == a_key(user="u").owner
    assert Owner("t", "1") == a_key().owner
