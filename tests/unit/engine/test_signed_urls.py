"""Links open one thing, by one method, for a while."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from backburner.engine.access.signed_urls import SignedUrls
from backburner.testing.doubles import FrozenClock

OLD, NEW = "an old secret " * 3, "a new secret " * 3
PATH = "/v1/blobs/job_1.input"


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def signed_urls(clock):
    return SignedUrls([NEW], clock.now)


def carried(url):
    query = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
    return query | {"exp": int(query["exp"])}


def test_a_link_holds_for_a_quarter_of_an_hour(signed_urls, clock):
    url, expires_at = signed_urls.sign(PATH)
    clock.advance(timedelta(minutes=15, seconds=-1))
    before = signed_urls.holds("GET", PATH, **carried(url))
    clock.advance(timedelta(seconds=1))

    assert before
    assert not signed_urls.holds("GET", PATH, **carried(url))
    assert clock.now() == expires_at


def test_a_link_holds_for_a_day_at_most(signed_urls, clock):
    url, _ = signed_urls.sign(PATH, span=timedelta(days=365))
    clock.advance(timedelta(hours=24))

    assert not signed_urls.holds("GET", PATH, **carried(url))


@pytest.mark.parametrize(
    ("method", "path", "changed"),
    [
        ("HEAD", PATH, {}),
        ("DELETE", PATH, {}),
        ("GET", "/v1/blobs/job_2.input", {}),
        ("GET", PATH + "/", {}),
        ("GET", PATH, {"exp": 1_767_268_800 + 901}),
        ("GET", PATH, {"kid": "deadbeef"}),
        ("GET", PATH, {"sig": ""}),
        ("GET", PATH, {"sig": "A" * 43}),
        ("GET", PATH, {"sig": "é\udc80"}),
    ],
)
def test_nothing_of_a_link_can_be_changed(signed_urls, method, path, changed):
    url, _ = signed_urls.sign(PATH)

    assert signed_urls.holds("GET", PATH, **carried(url))
    assert not signed_urls.holds(method, path, **carried(url) | changed)


def test_a_secret_that_is_replaced_holds_until_it_is_taken_away(clock):
    url, _ = SignedUrls([OLD], clock.now).sign(PATH)

    assert SignedUrls([NEW, OLD], clock.now).holds("GET", PATH, **carried(url))
    assert not SignedUrls([NEW], clock.now).holds("GET", PATH, **carried(url))


def test_the_first_secret_signs(clock):
    url, _ = SignedUrls([NEW, OLD], clock.now).sign(PATH)

    assert SignedUrls([NEW], clock.now).holds("GET", PATH, **carried(url))
