"""Links open one thing, by one method, for a while."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from backburner.engine.links import Links
from backburner.testing.doubles import FrozenClock

OLD, NEW = "an old secret " * 3, "a new secret " * 3
PATH = "/v1/blobs/job_1.input"


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def links(clock):
    return Links([NEW], clock.now)


def carried(url):
    query = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
    return query | {"exp": int(query["exp"])}


def test_a_link_holds_for_a_quarter_of_an_hour(links, clock):
    url, expires_at = links.sign(PATH)
    clock.advance(timedelta(minutes=15, seconds=-1))
    before = links.holds("GET", PATH, **carried(url))
    clock.advance(timedelta(seconds=1))

    assert before
    assert not links.holds("GET", PATH, **carried(url))
    assert clock.now() == expires_at


def test_a_link_holds_for_a_day_at_most(links, clock):
    url, _ = links.sign(PATH, span=timedelta(days=365))
    clock.advance(timedelta(hours=24))

    assert not links.holds("GET", PATH, **carried(url))


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
def test_nothing_of_a_link_can_be_changed(links, method, path, changed):
    url, _ = links.sign(PATH)

    assert links.holds("GET", PATH, **carried(url))
    assert not links.holds(method, path, **carried(url) | changed)


def test_a_secret_that_is_replaced_holds_until_it_is_taken_away(clock):
    url, _ = Links([OLD], clock.now).sign(PATH)

    assert Links([NEW, OLD], clock.now).holds("GET", PATH, **carried(url))
    assert not Links([NEW], clock.now).holds("GET", PATH, **carried(url))


def test_the_first_secret_signs(clock):
    url, _ = Links([NEW, OLD], clock.now).sign(PATH)

    assert Links([NEW], clock.now).holds("GET", PATH, **carried(url))
