"""Tests on PostgreSQL are shared out to the transports that a run is about."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import homes

PROJECT = Path(__file__).parents[2]
TESTS = [f"tests/http/test_jobs.py::test_{n}[postgres]" for n in range(1_000)]


@pytest.mark.parametrize("brokers", [["", "rabbitmq"], ["", "rabbitmq", "redis"]])
def test_each_transport_has_its_share_of_the_tests(brokers, monkeypatch):
    monkeypatch.setattr(homes, "BROKERS", brokers)
    shares = Counter(map(homes.broker_of, TESTS))

    assert set(brokers) == set(shares)
    assert min(shares.values()) > 0.8 * len(TESTS) / len(brokers)


def test_a_test_always_has_the_same_transport(monkeypatch):
    monkeypatch.setattr(homes, "BROKERS", ["", "rabbitmq"])

    assert [*map(homes.broker_of, TESTS)] == [*map(homes.broker_of, TESTS)]


def test_each_store_has_its_share_of_those_that_need_one(monkeypatch):
    monkeypatch.setattr(homes, "STORES", ["sqlite", "postgres"])
    shares = Counter(map(homes.one_of, TESTS))

    assert {"sqlite", "postgres"} == set(shares)
    assert min(shares.values()) > 0.8 * len(TESTS) / 2


def test_one_transport_has_them_all(monkeypatch):
    monkeypatch.setattr(homes, "BROKERS", ["sqs"])

    assert {"sqs"} == set(map(homes.broker_of, TESTS))


def stores_of(folder, *marks, is_brief=False):
    """Return on which stores a test of a folder runs."""
    config = SimpleNamespace(getoption={"--brief": is_brief}.__getitem__)

    def item(store):
        return SimpleNamespace(
            nodeid=f"{folder}test_x.py::test_y[{store}]",
            path=PROJECT / folder / "test_x.py",
            originalname="test_y",
            fixturenames=[],
            callspec=SimpleNamespace(params={"store_url": store}),
            get_closest_marker=lambda name: name in marks,
            config=config,
        )

    return [store for store in ("sqlite", "postgres") if homes.is_at_home(item(store))]


def test_a_test_of_what_uses_a_store_runs_on_one_unless_it_is_of_full_size(monkeypatch):
    monkeypatch.setattr(homes, "STORES", ["sqlite", "postgres"])

    assert 1 == len(stores_of("tests/apps/chat/"))
    assert 2 == len(stores_of("tests/apps/chat/", "chaos"))
    assert 1 == len(stores_of("tests/faults/", "one_store"))
    assert 2 == len(stores_of("tests/faults/"))
    assert 2 == len(stores_of("tests/apps/documents/retrieval/"))
    assert 1 == len(stores_of("tests/faults/", is_brief=True))
    assert 2 == len(stores_of("tests/store/", is_brief=True))


def test_the_places_that_are_named_are_there():
    named = (*homes.ONE_STORE, *homes.BOTH_STORES)

    assert [] == [place for place in named if not (PROJECT / place).exists()]
